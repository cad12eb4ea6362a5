/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/capi.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "agent/core/python.h"

struct capi py;

int capi_load(const struct agent_python *found) {
    struct agent_python here;
    struct capi a;
    int missing = 0;
    if (capi_loaded())
        return 0;
    if (!found) {
        int err = agent_python_find(&here);
        if (err)
            return err;
        found = &here;
    }
    memset(&a, 0, sizeof a);
#define X(result, name, args)                                                                      \
    {                                                                                              \
        void *p = dlsym(found->handle, #name);                                                     \
        memcpy(&a.name, &p, sizeof p);                                                             \
    }
    CAPI_NEEDED(X)
    CAPI_OPTIONAL(X)
#undef X
#define X(name, symbol) a.name = dlsym(found->handle, #symbol);
    CAPI_OBJECTS(X)
    CAPI_ERRORS(X)
#undef X
    dlerror(); /* the program is not to find our error */
#define X(result, name, args) missing |= !a.name;
    CAPI_NEEDED(X)
#undef X
#define X(name, symbol) missing |= !a.name;
    CAPI_OBJECTS(X)
    CAPI_ERRORS(X)
#undef X
    if (missing)
        return -ENOTSUP;
#define X(name, symbol) a.name = *(void **)a.name;
    CAPI_ERRORS(X)
#undef X
    /* Two threads that come at once write the same; nobody reads before the version is there. */
    memcpy(&py.None, &a.None, sizeof a - offsetof(struct capi, None));
    __atomic_store_n(&py.version, found->target.version, __ATOMIC_RELEASE);
    return 0;
}

int capi_usable(void) {
    if (!capi_loaded() || !py.Py_IsInitialized())
        return 0;
    if (py.Py_IsFinalizing)
        return !py.Py_IsFinalizing();
    return !py._Py_IsFinalizing || !py._Py_IsFinalizing();
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
    void *spec = capi_attr(module, "__spec__");
    void *initializing = capi_attr(spec, "_initializing");
    if (initializing && py.PyObject_IsTrue(initializing) != 0)
        module = NULL;
    capi_unref(initializing);
    capi_unref(spec);
    return module;
}
