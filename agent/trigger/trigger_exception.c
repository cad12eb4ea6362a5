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

/* Adds a str of several lines to the text. Returns the last of them; NULL if it is no such str, or NULL. */
static const char *say_lines(struct trigger *t, void *str) {
    size_t len, said = strlen(t->text);
    const char *all = pyvalue_utf8(str, &len);
    while (len && all[len - 1] == '\n')
        len--;
    const char *last = len ? memrchr(all, '\n', len) : NULL;
    if (last)
        snprintf(t->text + said, sizeof t->text - said, "\n%s", all);
    return last ? last + 1 : NULL;
}

/* Sets the detail to "ValueError: first line ... last line" (the last one is what a worker of a DataLoader raised), and adds a message of several lines to
 * the text, and that of the cause: a process pool's holds the worker's traceback. str() may run the program's code, as the built-in hook will do next anyway. */
static void say_exception(struct trigger *t, void *value) {
    CAPI_AUTO void *str = py.PyObject_Str(value);
    py.PyErr_Clear();
    CAPI_AUTO void *cause = capi_attr(value, "__cause__"), *theirs = py.PyObject_Str(cause);
    py.PyErr_Clear();
    size_t n = strlen(text_of(capi_type(value), "__name__", t->detail, sizeof t->detail - 2));
    strcpy(t->detail + n, ": ");
    if (str) /* as many complete characters as fit */
        pyvalue_text(str, t->detail + n + 2, sizeof t->detail - n - 2);
    t->detail[strcspn(t->detail, "\n")] = 0;
    const char *last = say_lines(t, str);
    say_lines(t, theirs);
    if (last) {
        trigger_say(t, " ... ");
        trigger_say(t, last);
        t->detail[strcspn(t->detail, "\n")] = 0;
    }
    t->detail[n] = t->detail[n + 2] ? ':' : 0;
}

/* Returns the next entry of a traceback, in place of this one, whose reference it releases. */
static void *next_of(void *tb) {
    void *next = capi_attr(tb, "tb_next");
    capi_unref(tb);
    return next;
}

/* Sets the text to the innermost FRAMES frames of the traceback, in the order in which Python prints it. */
static void say_traceback(struct trigger *t, void *traceback) {
    char file[TEXT], name[TEXT];
    size_t n = 0, left = 0;
    for (void *tb = capi_ref(traceback); tb; tb = next_of(tb))
        left++;
    for (void *tb = capi_ref(traceback); tb; tb = next_of(tb)) {
        CAPI_AUTO void *frame = capi_attr(tb, "tb_frame"); /* NULL of the None at the end */
        CAPI_AUTO void *code = capi_attr(frame, "f_code"), *line = capi_attr(tb, "tb_lineno");
        if (left-- <= FRAMES + 1 && code && n < sizeof t->text)
            n += (size_t)snprintf(t->text + n, sizeof t->text - n, "File \"%s\", line %ld, in %s\n",
                                  text_of(code, "co_filename", file, sizeof file),
                                  capi_long(line, -1), text_of(code, "co_name", name, sizeof name));
    }
}

static void report(void *value) {
    struct capi_state state;
    struct trigger *t = producer_recording() ? trigger_new(TRIGGER_exception) : NULL;
    if (!t)
        return;
    capi_enter(&state);
    CAPI_AUTO void *traceback = capi_attr(value, "__traceback__");
    say_traceback(t, traceback);
    say_exception(t, value);
    capi_leave(&state);
    trigger_post(t, TRIGGER_WAIT_MS);
}

/* ---- functions that run before the built-in hooks, by calling convention ---- */

static void *sys_array(void *self, void *args, ssize_t n, void *names) {
    void *const *items = args;
    if (n == 3)
        report(items[1]);
    return sys_was(self, args, n, names);
}

static void *sys_tuple(void *self, void *args, ssize_t n, void *names) {
    void *const *items = capi_at(args, CAPI_OB_ITEM);
    if (py.PyObject_Size(args) == 3)
        report(items[1]);
    return sys_was(self, args, n, names);
}

/* `args` is a threading.ExceptHookArgs: exc_type, exc_value, exc_traceback. The built-in hook ignores SystemExit. */
static void *thread_object(void *self, void *args, ssize_t n, void *names) {
    CAPI_AUTO void *value = capi_attr(args, "exc_value");
    char name[64];
    if (value && strcmp(text_of(capi_type(value), "__name__", name, sizeof name), "SystemExit"))
        report(value);
    return thread_was(self, args, n, names);
}

void trigger_exception_install(void) {
    if (!sys_was &&
        !(sys_was = capi_replace(capi_module("sys"), "__excepthook__", PY_FASTCALL, sys_array)))
        sys_was = capi_replace(capi_module("sys"), "__excepthook__", PY_VARARGS, sys_tuple);
    if (!thread_was)
        thread_was = capi_replace(capi_module("_thread"), "_excepthook", PY_ONE, thread_object);
}
