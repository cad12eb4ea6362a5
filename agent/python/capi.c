/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/capi.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "agent/core/python.h"

struct capi py;

static void *object_at(void *handle, const char *name) {
    void **at = dlsym(handle, name); /* PyExc_TypeError is a variable that points at the object */
    return at ? *at : NULL;
}

static int find_objects(struct capi *a, void *handle) {
    const struct {
        const char *name;
        void **to;
        int variable;
    } objects[] = {
        {"_Py_NoneStruct", &a->None, 0},
        {"_Py_TrueStruct", &a->True, 0},
        {"_Py_FalseStruct", &a->False, 0},
        {"PyFloat_Type", &a->Float_Type, 0},
        {"PyLong_Type", &a->Long_Type, 0},
        {"PyBool_Type", &a->Bool_Type, 0},
        {"PyUnicode_Type", &a->Str_Type, 0},
        {"PyTuple_Type", &a->Tuple_Type, 0},
        {"PyList_Type", &a->List_Type, 0},
        {"PyType_Type", &a->Type_Type, 0},
        {"PySuper_Type", &a->Super_Type, 0},
        {"PyDict_Type", &a->Dict_Type, 0},
        {"PyCFunction_Type", &a->CFunction_Type, 0},
        {"PyExc_TypeError", &a->TypeError, 1},
        {"PyExc_RuntimeError", &a->RuntimeError, 1},
        {"PyExc_ValueError", &a->ValueError, 1},
        {"PyExc_KeyboardInterrupt", &a->KeyboardInterrupt, 1},
    };
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        *objects[i].to = objects[i].variable ? object_at(handle, objects[i].name)
                                             : dlsym(handle, objects[i].name);
        if (!*objects[i].to)
            return -ENOTSUP;
    }
    return 0;
}

int capi_load(const struct agent_python *found) {
    struct agent_python here;
    struct capi a;
    int err;
    if (capi_loaded())
        return 0;
    if (!found) {
        err = agent_python_find(&here);
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
    err = find_objects(&a, found->handle);
    dlerror(); /* the program is not to find our error */
    if (err)
        return err;
#define X(result, name, args)                                                                      \
    if (!a.name)                                                                                   \
        return -ENOTSUP;
    CAPI_NEEDED(X)
#undef X
    /* Two threads that come at once write the same; nobody looks before the version is there. */
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
