/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/capi.h"

#include <dlfcn.h>
#include <errno.h>

#include "agent/core/python.h"
#include "traces/proc.h"

struct capi py;

/* The index of a member among the pointers of struct capi. */
#define PLACE(member)                                                                              \
    ((offsetof(struct capi, member) - offsetof(struct capi, None)) / sizeof(void *))

int capi_load(const struct agent_python *found) {
    static const char *const names[] = {
#define X(name, symbol) #symbol,
        CAPI_OBJECTS(X)
#undef X
#define X(result, name, args) #name,
            CAPI_NEEDED(X) CAPI_OPTIONAL(X)
#undef X
    };
    void *at[sizeof names / sizeof *names];
    _Static_assert(sizeof at == sizeof(struct capi) - offsetof(struct capi, None), "in this order");
    struct agent_python here;
    int missing = 0;
    if (capi_loaded())
        return 0;
    if (!found) {
        int err = agent_python_find(&here, 0);
        if (err)
            return err;
        found = &here;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        at[i] = dlsym(found->handle, names[i]);
        missing |= !at[i] && i < PLACE(Py_IsFinalizing); /* the first optional one */
        if (at[i] && i >= PLACE(TypeError) && i <= PLACE(KeyboardInterrupt))
            at[i] = *(void **)at[i];
    }
    dlerror(); /* so that the program's dlerror() does not return our error */
    if (missing)
        return -ENOTSUP;
    /* Two threads that get here at once write the same values; no thread reads them before the version is set. */
    memcpy(&py.None, at, sizeof at);
    __atomic_store_n(&py.version, found->found.target.version, __ATOMIC_RELEASE);
    return 0;
}

int capi_usable(void) {
    int (*ends)(void) = py.Py_IsFinalizing ? py.Py_IsFinalizing : py._Py_IsFinalizing;
    return capi_loaded() && py.Py_IsInitialized() && (!ends || !ends());
}

int capi_classes(void *class, int (*fn)(void *class)) {
    AUTO_FREE void **todo = NULL;
    size_t n = 0;
    int rc = 0;
    CAPI_AUTO void *method = capi_attr(py.Type_Type, "__subclasses__");
    while (class && method && !(rc = fn(class))) {
        CAPI_AUTO void *list = capi_call(method, class);
        ssize_t k = list ? py.PyObject_Size(list) : 0;
        for (ssize_t i = 0; i < k && !array_grow(&todo, n, sizeof *todo); i++)
            todo[n++] = py.PyList_GetItem(list, i); /* borrowed: nothing here can free the class */
        class = n ? todo[--n] : NULL;
    }
    py.PyErr_Clear();
    return rc;
}

void capi_enter(struct capi_state *s) {
    s->held = py.PyGILState_Check();
    s->gil = s->held ? 0 : py.PyGILState_Ensure();
    py.PyErr_Fetch(&s->error[0], &s->error[1], &s->error[2]);
}

void capi_leave(const struct capi_state *s) {
    py.PyErr_Restore(s->error[0], s->error[1], s->error[2]);
    if (!s->held)
        py.PyGILState_Release(s->gil);
}

void *capi_attr(void *object, const char *name) {
    void *p = object ? py.PyObject_GetAttrString(object, name) : NULL;
    if (object && !p)
        py.PyErr_Clear();
    return p;
}

void *capi_module(const char *name) {
    void *modules = py.PyImport_GetModuleDict();
    void *module = modules ? py.PyDict_GetItemString(modules, name) : NULL;
    CAPI_AUTO void *spec = capi_attr(module, "__spec__");
    CAPI_AUTO void *initializing = capi_attr(spec, "_initializing");
    return initializing == py.True ? NULL : module;
}

capi_function *capi_replace(void *module, const char *name, int flags, capi_function *ours) {
    CAPI_AUTO void *f = capi_attr(module, name);
    if (!f || capi_type(f) != py.CFunction_Type)
        return NULL;
    struct py_method *m = *(struct py_method **)capi_at(f, CAPI_M_ML);
    return m->flags != flags ? NULL : __atomic_exchange_n(&m->fn, (void *)ours, __ATOMIC_ACQ_REL);
}

__attribute__((visibility("hidden"))) extern char __start_capi_kept[],
    __stop_capi_kept[]; /* defined by the linker */
static CAPI_KEPT void *keeps;

/* Called by Py_Finalize() as its last action, when no thread holds the GIL. */
static void forget(void) {
    memset(__start_capi_kept, 0, (uintptr_t)__stop_capi_kept - (uintptr_t)__start_capi_kept);
}

void capi_keep(void) {
    if (!keeps && !py.Py_AtExit(forget))
        keeps = py.None;
}

void *capi_run(const char *source) {
    void *names = py.PyDict_New(), *done = NULL;
    capi_keep();
    if (names && !py.PyDict_SetItemString(names, "__builtins__", py.PyEval_GetBuiltins()))
        done = py.PyRun_String(source, 257 /* Py_file_input */, names, names);
    capi_unref(done ? done : names);
    return done ? names : NULL;
}
