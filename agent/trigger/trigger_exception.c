/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger_exception.c - uncaught exceptions, told before the interpreter prints them.
 *
 * sys.excepthook and threading.excepthook stay the objects they are: what is replaced is the C function that the built-in
 * ones call, in their method definitions (data of the interpreter, writable). So `sys.excepthook is sys.__excepthook__`
 * holds and nothing is seen from Python. A program that sets a hook of its own is noticed
 * when that hook calls the built-in one, which most do; else not. SystemExit calls none.
 */
#include <stdio.h>
#include <string.h>

#include "agent/core/producer.h"
#include "agent/python/capi.h"
#include "agent/python/pyvalue.h"
#include "agent/trigger/trigger.h"

#define WAIT_MS 500
#define FRAMES  64

/* PyMethodDef and the head of PyCFunctionObject: part of the ABI since Python 2. */
struct method {
    const char *name;
    void *function;
    int flags;
    const char *doc;
};
struct cfunction {
    uint64_t refcount;
    void *type;
    struct method *method;
};
enum { METH_VARARGS = 1, METH_O = 8, METH_FASTCALL = 0x80 };

typedef void *(*with_tuple)(void *self, void *args);
typedef void *(*with_array)(void *self, void *const *args, ssize_t n);

static struct hook {
    const char *module, *attribute;
    struct method *method; /* (a) */
    void *original;
    int flags;
} hooks[] = {{"sys", "__excepthook__", NULL, NULL, 0}, {"_thread", "_excepthook", NULL, NULL, 0}};

/* ---- what is told ---- */

static void say_object(char *buf, size_t n, void *object, const char *attribute) {
    char text[512];
    void *value = capi_attr(object, attribute);
    if (value) {
        pyvalue_text(value, text, sizeof text);
        trigger_say(buf, n, text);
    }
    capi_unref(value);
}

static long number_of(void *object, const char *attribute) {
    void *value = capi_attr(object, attribute);
    long n = value ? py.PyLong_AsLong(value) : -1;
    capi_unref(value);
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    return n;
}

/* "ValueError: text". str() of an exception is the program's own code, as in the hook that follows. */
static void say_exception(struct trigger *t, void *type, void *value) {
    char text[200];
    void *str;
    say_object(t->detail, sizeof t->detail, type, "__name__");
    str = value ? py.PyObject_Str(value) : NULL;
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    if (str && pyvalue_text(str, text, sizeof text) > 0) {
        text[strcspn(text, "\n")] = 0;
        trigger_say(t->detail, sizeof t->detail, ": ");
        trigger_say(t->detail, sizeof t->detail, text);
    }
    capi_unref(str);
}

/* Outermost first, as Python prints it. */
static void say_traceback(struct trigger *t, void *traceback) {
    void *tb = traceback;
    char line[48];
    if (tb)
        py.Py_IncRef(tb);
    for (int i = 0; tb && i < FRAMES; i++) {
        void *frame = capi_attr(tb, "tb_frame"), *code = capi_attr(frame, "f_code");
        void *next = capi_attr(tb, "tb_next");
        if (!code) /* None at the end */
            i = FRAMES;
        else {
            trigger_say(t->text, sizeof t->text, "File \"");
            say_object(t->text, sizeof t->text, code, "co_filename");
            snprintf(line, sizeof line, "\", line %ld, in ", number_of(tb, "tb_lineno"));
            trigger_say(t->text, sizeof t->text, line);
            say_object(t->text, sizeof t->text, code, "co_name");
            trigger_say(t->text, sizeof t->text, "\n");
        }
        capi_unref(frame);
        capi_unref(code);
        py.Py_DecRef(tb);
        tb = next;
    }
    capi_unref(tb);
}

static void tell(void *type, void *value, void *traceback) {
    void *saved[3], *kept = NULL;
    struct trigger *t = producer_recording() ? trigger_new(TRIGGER_exception) : NULL;
    if (!t)
        return;
    py.PyErr_Fetch(&saved[0], &saved[1], &saved[2]);
    if (!traceback)
        traceback = kept = capi_attr(value, "__traceback__");
    say_exception(t, type, value);
    say_traceback(t, traceback);
    capi_unref(kept);
    py.PyErr_Restore(saved[0], saved[1], saved[2]);
    trigger_post(t, WAIT_MS);
}

/* threading.ExceptHookArgs: exc_type, exc_value, exc_traceback. SystemExit is silent there. */
static void tell_of_thread(void *args) {
    void *type = capi_attr(args, "exc_type"), *value = capi_attr(args, "exc_value");
    void *traceback = capi_attr(args, "exc_traceback");
    char name[64] = "";
    void *str = capi_attr(type, "__name__");
    if (str)
        pyvalue_text(str, name, sizeof name);
    if (strcmp(name, "SystemExit"))
        tell(type, value, traceback);
    void *all[] = {type, value, traceback, str};
    for (int i = 0; i < 4; i++)
        capi_unref(all[i]);
}

/* ---- in front of the hooks ---- */

static void *sys_array(void *self, void *const *args, ssize_t n) {
    if (n == 3)
        tell(args[0], args[1], args[2]);
    with_array original;
    memcpy(&original, &hooks[0].original, sizeof original);
    return original(self, args, n);
}

/* A tuple: its items follow its length. */
static void *sys_tuple(void *self, void *args) {
    void *const *items = (void *const *)((char *)args + 24);
    with_tuple original;
    if (py.PyObject_Size(args) == 3)
        tell(items[0], items[1], items[2]);
    memcpy(&original, &hooks[0].original, sizeof original);
    return original(self, args);
}

static void *thread_object(void *self, void *args) {
    with_tuple original;
    tell_of_thread(args);
    memcpy(&original, &hooks[1].original, sizeof original);
    return original(self, args);
}

static void install(struct hook *h, void *fast, void *tuple, void *object) {
    void *modules = py.PyImport_GetModuleDict();
    void *module = modules ? py.PyDict_GetItemString(modules, h->module) : NULL;
    void *hook = capi_attr(module, h->attribute);
    const struct cfunction *f = hook;
    if (!f || f->type != py.CFunction_Type || h->method)
        goto out;
    struct method *m = f->method;
    void *ours = m->flags == METH_FASTCALL  ? fast
                 : m->flags == METH_VARARGS ? tuple
                 : m->flags == METH_O       ? object
                                            : NULL;
    if (!ours)
        goto out;
    h->original = m->function;
    h->flags = m->flags;
    __atomic_store_n(&m->function, ours, __ATOMIC_RELEASE);
    h->method = m;
out:
    capi_unref(hook);
}

void trigger_exception_install(void) {
    install(&hooks[0], (void *)sys_array, (void *)sys_tuple, NULL);
    install(&hooks[1], NULL, NULL, (void *)thread_object);
}
