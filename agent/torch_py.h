/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_py.h - what the torch parts call of CPython and of PyTorch, found by name in the running process.
 *
 *     if (!torch_py_load()) tpy.PyObject_GenericGetDict(...)        // GIL held
 *     if (!torch_lib_load()) torch_lib.peek()                      // any thread
 *
 * Loading may wait for the dynamic loader's lock: service thread only.
 */
#ifndef PROBING_AGENT_TORCH_PY_H
#define PROBING_AGENT_TORCH_PY_H

#include <stdint.h>
#include <sys/types.h>

#define TORCH_PY(X)                                                                                \
    X(int, PyGILState_Ensure, (void))                                                              \
    X(void, PyGILState_Release, (int))                                                             \
    X(int, PyGILState_Check, (void))                                                               \
    X(int, Py_IsInitialized, (void))                                                               \
    X(int, Py_AddPendingCall, (int (*)(void *), void *))                                           \
    X(void, Py_DecRef, (void *))                                                                   \
    X(void *, PyImport_GetModuleDict, (void))                                                      \
    X(void *, PyObject_GetAttrString, (void *, const char *))                                      \
    X(int, PyObject_SetAttrString, (void *, const char *, void *))                                 \
    X(void *, PyObject_GenericGetDict, (void *, void *))                                           \
    X(void *, PyObject_Call, (void *, void *, void *))                                             \
    X(void *, PyObject_CallFunctionObjArgs, (void *, ...))                                         \
    X(void *, PyDict_GetItemString, (void *, const char *))                                        \
    X(int, PyDict_Next, (void *, ssize_t *, void **, void **))                                     \
    X(void *, PyTuple_New, (ssize_t))                                                              \
    X(void *, PyTuple_GetItem, (void *, ssize_t))                                                  \
    X(ssize_t, PyTuple_Size, (void *))                                                             \
    X(ssize_t, PyList_Size, (void *))                                                              \
    X(void *, PyList_GetItem, (void *, ssize_t))                                                   \
    X(const char *, PyUnicode_AsUTF8, (void *))                                                    \
    X(void *, PyWeakref_NewRef, (void *, void *))                                                  \
    X(void *, PyDescr_NewClassMethod, (void *, void *))                                            \
    X(void *, PyType_GetSlot, (void *, int))                                                       \
    X(int, PyType_IsSubtype, (void *, void *))                                                     \
    X(void *, PyEval_GetFrame, (void))                                                             \
    X(void, PyErr_Clear, (void))                                                                   \
    X(void *, PyErr_Occurred, (void))

struct torch_py {
    uint32_t version; /* 0: not loaded */
    void *None;
    void *Type_Type, *Super_Type, *Unicode_Type, *Dict_Type;
#define X(result, name, args) result(*name) args;
    TORCH_PY(X)
#undef X
    int (*finalizing)(void);
};
extern struct torch_py tpy;

/* 0; -ENOENT no Python, -EAGAIN not up yet, -ENOTSUP (a free-threaded build, or something is missing). */
int torch_py_load(void);

/* A callback of at::RecordFunction; passed by value, 40 bytes. */
struct torch_callback {
    void *start, *end;
    double probability;
    uint8_t scopes[10];
    uint8_t inputs, outputs, ids;
};
enum { TORCH_SCOPE_BACKWARD = 1, TORCH_SCOPE_USER = 7 };

struct torch_lib {
    int loaded; /* 0 not looked at, 1 there, -1 not usable */
    uint64_t (*add_callback)(struct torch_callback);
    void (*remove_callback)(uint64_t);
    const char *(*name)(const void *rf);
    uint64_t (*peek)(void);
    void (*construct)(void *rf, uint8_t scope);
    void (*destroy)(void *rf);
    void (*before)(void *rf, const char *name, int64_t sequence); /* 1.x */
    void *before2;                                                /* 2.x: takes a variant */
    int before2_order; /* of the view in it: 0 length first, 1 pointer first */
};
extern struct torch_lib torch_lib;

/* 0; -ENOENT libtorch_cpu.so is not there (yet); -ENOTSUP it lacks what everything here needs. */
int torch_lib_load(void);
/* RecordFunction::before() of any version: 0 or -ENOTSUP. */
int torch_lib_before(void *rf, const char *name, int64_t sequence);

#define TORCH_TYPE(o)      (*(void **)((char *)(o) + 8))
#define TORCH_TYPE_NAME(t) (*(const char **)((char *)(t) + 24))
/* What a weak reference points at, None when it is gone; the place is the same in GIL builds of 3.6 to 3.15. */
#define TORCH_WEAK(r) (*(void **)((char *)(r) + 16))

#endif
