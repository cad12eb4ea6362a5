/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger_exception.c - uncaught exceptions, recorded before the interpreter prints them.
 *
 * The objects sys.excepthook and threading.excepthook are not replaced. Instead, the C function pointers in the method definitions of the built-in hooks are
 * (writable data of the interpreter). So `sys.excepthook is sys.__excepthook__` still holds, and Python code sees no change. Where the program sets a hook of
 * its own, exceptions are recorded only if that hook calls the built-in one, which most do. SystemExit calls no hook.
 */
#include <stdio.h>

#include "agent/core/producer.h"
#include "agent/python/capi.h"
#include "agent/python/pyvalue.h"
#include "agent/trigger/trigger.h"

#define FRAMES 64
#define TEXT   512

static capi_function *sys_was, *thread_was; /* NULL: not replaced */

/* ---- what is recorded ---- */

/* Returns the text of an object's attribute; "?" when the object does not have it. */
static const char *text_of(void *object, const char *attribute, char *buf, size_t n) {
    CAPI_AUTO void *value = capi_attr(object, attribute);
    pyvalue_text(value, buf, n);
    return buf;
}

/* Sets the detail to "ValueError: first line ... last line" (the last one is what a worker of a DataLoader or a pool raised), and adds a message of several
 * lines to the text. str() of an exception may run the program's code, as the built-in hook will do next anyway. */
static void say_exception(struct trigger *t, void *type, void *value) {
    CAPI_AUTO void *str = value ? py.PyObject_Str(value) : NULL;
    size_t len, said = strlen(t->text);
    const char *all = pyvalue_utf8(str, &len);
    py.PyErr_Clear();
    size_t n = strlen(text_of(type, "__name__", t->detail, sizeof t->detail - 2));
    strcpy(t->detail + n, ": ");
    if (str) /* as many complete characters as fit */
        pyvalue_text(str, t->detail + n + 2, sizeof t->detail - n - 2);
    t->detail[strcspn(t->detail, "\n")] = 0;
    while (len && all[len - 1] == '\n')
        len--;
    const char *last = len ? memrchr(all, '\n', len) : NULL;
    if (last) {
        snprintf(t->text + said, sizeof t->text - said, "\n%s", all);
        trigger_say(t, " ... ");
        trigger_say(t, last + 1);
        t->detail[strcspn(t->detail, "\n")] = 0;
    }
    t->detail[n] = t->detail[n + 2] ? ':' : 0;
}

/* Sets the text to the traceback, outermost frame first, as Python prints it. */
static void say_traceback(struct trigger *t, void *traceback) {
    char file[TEXT], name[TEXT];
    size_t n = 0;
    void *tb = capi_ref(traceback);
    for (int i = 0; tb && tb != py.None && i < FRAMES && n < sizeof t->text; i++) {
        CAPI_AUTO void *frame = capi_attr(tb, "tb_frame");
        CAPI_AUTO void *code = capi_attr(frame, "f_code"), *line = capi_attr(tb, "tb_lineno");
        void *next = capi_attr(tb, "tb_next");
        if (code)
            n += (size_t)snprintf(t->text + n, sizeof t->text - n, "File \"%s\", line %ld, in %s\n",
                                  text_of(code, "co_filename", file, sizeof file),
                                  capi_long(line, -1), text_of(code, "co_name", name, sizeof name));
        py.Py_DecRef(tb);
        tb = next;
    }
    capi_unref(tb);
}

static void report(void *type, void *value, void *traceback) {
    struct capi_state state;
    struct trigger *t = producer_recording() ? trigger_new(TRIGGER_exception) : NULL;
    if (!t)
        return;
    capi_enter(&state);
    CAPI_AUTO void *kept = traceback ? NULL : capi_attr(value, "__traceback__");
    say_traceback(t, traceback ? traceback : kept);
    say_exception(t, type, value);
    capi_leave(&state);
    trigger_post(t, TRIGGER_WAIT_MS);
}

/* ---- functions that run before the built-in hooks, by calling convention ---- */

static void *sys_array(void *self, void *args, ssize_t n, void *names) {
    void *const *items = args;
    if (n == 3)
        report(items[0], items[1], items[2]);
    return sys_was(self, args, n, names);
}

static void *sys_tuple(void *self, void *args, ssize_t n, void *names) {
    void *const *items = capi_at(args, CAPI_OB_ITEM);
    if (py.PyObject_Size(args) == 3)
        report(items[0], items[1], items[2]);
    return sys_was(self, args, n, names);
}

/* `args` is a threading.ExceptHookArgs: exc_type, exc_value, exc_traceback. The built-in hook ignores SystemExit. */
static void *thread_object(void *self, void *args, ssize_t n, void *names) {
    CAPI_AUTO void *type = capi_attr(args, "exc_type"), *value = capi_attr(args, "exc_value");
    CAPI_AUTO void *traceback = capi_attr(args, "exc_traceback");
    char name[64];
    if (strcmp(text_of(type, "__name__", name, sizeof name), "SystemExit"))
        report(type, value, traceback);
    return thread_was(self, args, n, names);
}

void trigger_exception_install(void) {
    if (!sys_was &&
        !(sys_was = capi_replace(capi_module("sys"), "__excepthook__", PY_FASTCALL, sys_array)))
        sys_was = capi_replace(capi_module("sys"), "__excepthook__", PY_VARARGS, sys_tuple);
    if (!thread_was)
        thread_was = capi_replace(capi_module("_thread"), "_excepthook", PY_ONE, thread_object);
}
