/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capi.h - the part of CPython's C API that the agent uses, found by name in the running interpreter: the agent links no
 * libpython and includes no Python.h, so that one build serves 3.6 and later.
 *
 *     if (capi_load(NULL)) return;                   // no Python here, or one that lacks something
 *     void *name = py.PyUnicode_FromString("loss");
 *
 * One table for all parts of the agent. All are functions of the stable ABI, or ones that every version of 3.6 to 3.15 exports; what
 * only some have is NULL elsewhere. Objects are void *. The GIL is to be held as CPython's own documentation says;
 * gil.h has functions called in a thread of the program that has it.
 */
#ifndef PROBING_AGENT_CAPI_H
#define PROBING_AGENT_CAPI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CAPI_NEEDED(X)                                                                             \
    X(int, PyGILState_Ensure, (void))                                                              \
    X(void, PyGILState_Release, (int))                                                             \
    X(int, PyGILState_Check, (void))                                                               \
    X(void *, PyGILState_GetThisThreadState, (void))                                               \
    X(int, Py_IsInitialized, (void))                                                               \
    X(int, Py_AddPendingCall, (int (*)(void *), void *))                                           \
    X(int, Py_AtExit, (void (*)(void)))                                                            \
    X(void *, PyEval_SaveThread, (void))                                                           \
    X(void, PyEval_RestoreThread, (void *))                                                        \
    X(void *, PyEval_GetFrame, (void))                                                             \
    X(void, PyEval_SetProfile, (int (*)(void *, void *, int, void *), void *))                     \
    X(void *, PyEval_GetBuiltins, (void))                                                          \
    X(void, Py_IncRef, (void *))                                                                   \
    X(void, Py_DecRef, (void *))                                                                   \
    X(void *, PyModule_Create2, (void *, int))                                                     \
    X(void *, PyCFunction_NewEx, (void *, void *, void *))                                         \
    X(void *, PyImport_GetModuleDict, (void))                                                      \
    X(void *, PyType_FromSpec, (void *))                                                           \
    X(void *, PyType_GenericAlloc, (void *, ssize_t))                                              \
    X(int, PyType_IsSubtype, (void *, void *))                                                     \
    X(void *, PyType_GetSlot, (void *, int))                                                       \
    X(void *, PyDescr_NewClassMethod, (void *, void *))                                            \
    X(void *, PyWeakref_NewRef, (void *, void *))                                                  \
    X(void, PyObject_Free, (void *))                                                               \
    X(void *, PyObject_GetAttrString, (void *, const char *))                                      \
    X(void *, PyObject_GetAttr, (void *, void *))                                                  \
    X(int, PyObject_SetAttrString, (void *, const char *, void *))                                 \
    X(void *, PyObject_GenericGetDict, (void *, void *))                                           \
    X(ssize_t, PyObject_Size, (void *))                                                            \
    X(void *, PyObject_CallFunctionObjArgs, (void *, ...))                                         \
    X(void *, PyObject_Call, (void *, void *, void *))                                             \
    X(void *, PyObject_CallFunction, (void *, const char *, ...))                                  \
    X(void *, PyObject_CallMethod, (void *, const char *, const char *, ...))                      \
    X(void *, PyRun_String, (const char *, int, void *, void *))                                   \
    X(void *, PyDict_New, (void))                                                                  \
    X(void *, PyDict_GetItem, (void *, void *))                                                    \
    X(void *, PyDict_GetItemString, (void *, const char *))                                        \
    X(int, PyDict_SetItem, (void *, void *, void *))                                               \
    X(int, PyDict_SetItemString, (void *, const char *, void *))                                   \
    X(int, PyDict_Next, (void *, ssize_t *, void **, void **))                                     \
    X(ssize_t, PyTuple_Size, (void *))                                                             \
    X(void *, PyTuple_GetItem, (void *, ssize_t))                                                  \
    X(void *, PyList_GetItem, (void *, ssize_t))                                                   \
    X(void *, PyUnicode_FromString, (const char *))                                                \
    X(void *, PyUnicode_FromStringAndSize, (const char *, ssize_t))                                \
    X(int, PyUnicode_Compare, (void *, void *))                                                    \
    X(const char *, PyUnicode_AsUTF8AndSize, (void *, ssize_t *))                                  \
    X(void *, PyBytes_FromStringAndSize, (const char *, ssize_t))                                  \
    X(int, PyBytes_AsStringAndSize, (void *, char **, ssize_t *))                                  \
    X(int, PyThreadState_SetAsyncExc, (unsigned long, void *))                                     \
    X(void *, PyLong_FromLong, (long))                                                             \
    X(void *, PyLong_FromUnsignedLongLong, (unsigned long long))                                   \
    X(long long, PyLong_AsLongLongAndOverflow, (void *, int *))                                    \
    X(long, PyLong_AsLong, (void *))                                                               \
    X(double, PyFloat_AsDouble, (void *))                                                          \
    X(void, PyErr_Clear, (void))                                                                   \
    X(void *, PyErr_Occurred, (void))                                                              \
    X(void, PyErr_SetString, (void *, const char *))                                               \
    X(void, PyErr_Fetch, (void **, void **, void **))                                              \
    X(void, PyErr_Restore, (void *, void *, void *))                                               \
    X(void *, PyObject_Str, (void *))                                                              \
    X(void *, PyCell_Get, (void *))

#define CAPI_OPTIONAL(X)                                                                           \
    X(int, Py_IsFinalizing, (void))                     /* 3.13 */                                 \
    X(int, _Py_IsFinalizing, (void))                    /* 3.7 to 3.12 */                          \
    X(int, PyEval_ThreadsInitialized, (void))           /* until 3.12 */                           \
    X(void, PyEval_InitThreads, (void))                 /* until 3.12 */                           \
    X(void *, PyContextVar_New, (const char *, void *)) /* 3.7 */                                  \
    X(int, PyContextVar_Get, (void *, void *, void **))                                            \
    X(void *, PyContextVar_Set, (void *, void *))                                                  \
    X(void *, PyThreadState_GetUnchecked, (void))  /* 3.13 */                                      \
    X(void *, _PyThreadState_UncheckedGet, (void)) /* until 3.12 */                                \
    X(void *, PyThreadState_Get, (void))           /* all; with: */                                \
    X(void, PyThreadState_EnterTracing, (void *))  /* 3.11 */                                      \
    X(void, PyThreadState_LeaveTracing, (void *))                                                  \
    X(void *, PyFrame_GetBack, (void *))        /* 3.9 */                                          \
    X(void *, PyFrame_GetCode, (void *))        /* 3.9 */                                          \
    X(void *, PyFrame_GetVar, (void *, void *)) /* 3.12 */

#define CAPI_OBJECTS(X)                                                                            \
    X(None, _Py_NoneStruct)                                                                        \
    X(True, _Py_TrueStruct)                                                                        \
    X(False, _Py_FalseStruct)                                                                      \
    X(Float_Type, PyFloat_Type)                                                                    \
    X(Long_Type, PyLong_Type)                                                                      \
    X(Bool_Type, PyBool_Type)                                                                      \
    X(Str_Type, PyUnicode_Type)                                                                    \
    X(Tuple_Type, PyTuple_Type)                                                                    \
    X(Type_Type, PyType_Type)                                                                      \
    X(Super_Type, PySuper_Type)                                                                    \
    X(Dict_Type, PyDict_Type)                                                                      \
    X(CFunction_Type, PyCFunction_Type)                                                            \
    X(TypeError, PyExc_TypeError) /* variables that point at the objects, from here on */          \
    X(RuntimeError, PyExc_RuntimeError)                                                            \
    X(ValueError, PyExc_ValueError)                                                                \
    X(KeyboardInterrupt, PyExc_KeyboardInterrupt)

struct capi {
    uint32_t version; /* PY_VERSION_HEX; 0: not loaded */
#define X(name, symbol) void *name;
    CAPI_OBJECTS(X)
#undef X
#define X(result, name, args) result(*name) args;
    CAPI_NEEDED(X)
    CAPI_OPTIONAL(X)
#undef X
};
extern struct capi py;

/* Fills `py`, once. `found`: what agent_python_find() said, or NULL: it is asked. 0; -ENOENT no Python, -EAGAIN not
 * initialised yet, -ENOTSUP. Any thread, no GIL needed; waits for the dynamic loader's lock. */
struct agent_python;
int capi_load(const struct agent_python *found);
/* A capi_load() went well. Any thread; async-signal-safe. */
static inline int capi_loaded(void) {
    return __atomic_load_n(&py.version, __ATOMIC_ACQUIRE) != 0;
}
/* Python is up and not on its way down: PyGILState_Ensure may be called. Any thread, no GIL needed. */
int capi_usable(void);

/* For code of ours at any place of the program: takes the GIL unless it is held, and puts an exception that is set aside. */
struct capi_state {
    int held, gil;
    void *error[3];
};
void capi_enter(struct capi_state *s);
/* As it was before; an exception that is set now is dropped. */
void capi_leave(const struct capi_state *s);

/* Attribute as a new reference, or NULL with no exception set. `object` may be NULL. */
void *capi_attr(void *object, const char *name);
/* Calls fn for the class and for all that are derived from it, until it returns something else than 0; that, or 0. GIL held. */
int capi_classes(void *class, int (*fn)(void *class));
/* sys.modules[name], borrowed; NULL when it is not there or its import is still going on: a pending call may come in the middle
 * of an import, when half of an extension is not initialised and calling it crashes. */
void *capi_module(const char *name);
/* What a built-in function of CPython's does, however it is called: with all four, or the first two or three of them. */
typedef void *capi_function(void *self, void *args, ssize_t n, void *names);
/* Puts `ours` into the definition of one that is called as `flags` say: data of the interpreter, writable.
 * What was there, to be called with all that came; NULL: it is none of those. */
capi_function *capi_replace(const char *module, const char *name, int flags, capi_function *ours);
/* static CAPI_KEPT void *name: an object that is kept. NULL again once Python has ended: the program may embed it, and begin another. */
#define CAPI_KEPT __attribute__((section("capi_kept")))
/* Before one is set, if not by capi_run(). With the GIL. */
void capi_keep(void);
/* Runs a program of ours in a namespace of its own: that, a new reference, or NULL with a Python error set. */
void *capi_run(const char *source);

/* The places of fields that no function gives, in GIL builds: those of 64-bit versions agree where no version is named.
 * tests/e2e/test_capi_places.py holds them against the headers of every Python at hand. */
enum capi_place {
    CAPI_OB_TYPE = 8,      /* PyObject */
    CAPI_TP_NAME = 24,     /* PyTypeObject */
    CAPI_TP_CALL = 128,    /* also checked in the process, by PyType_GetSlot() */
    CAPI_WR_OBJECT = 16,   /* PyWeakReference; also checked in the process */
    CAPI_OB_ITEM = 24,     /* PyTupleObject */
    CAPI_D_METHOD = 40,    /* PyMethodDescrObject */
    CAPI_M_ML = 16,        /* PyCFunctionObject */
    CAPI_LOCALS_3_6 = 376, /* PyFrameObject.f_localsplus */
    CAPI_LOCALS_3_7 = 360, /* to 3.9 */
    CAPI_LOCALS_3_10 = 352,
    CAPI_F_FRAME_3_11 = 24,  /* PyFrameObject.f_frame */
    CAPI_LOCALS_3_11 = 72,   /* _PyInterpreterFrame.localsplus */
    CAPI_XID_MUTEX_3_8 = 56, /* _PyRuntimeState.xidregistry.mutex */
};
static inline void *capi_at(const void *object, enum capi_place place) {
    return (char *)object + place;
}
static inline void *capi_type(const void *o) {
    return *(void *const *)capi_at(o, CAPI_OB_TYPE);
}
static inline const char *capi_type_name(const void *type) {
    return *(const char *const *)capi_at(type, CAPI_TP_NAME);
}
/* What a weak reference points at, None when it is gone. */
static inline void *capi_weak(const void *r) {
    return *(void *const *)capi_at(r, CAPI_WR_OBJECT);
}
/* A str's text, kept in it; NULL with a Python error set. */
static inline const char *capi_utf8(void *str) {
    return py.PyUnicode_AsUTF8AndSize(str, NULL);
}
/* Both let NULL be, as Py_IncRef() and Py_DecRef() do. */
static inline void *capi_ref(void *o) {
    py.Py_IncRef(o);
    return o;
}
static inline void capi_unref(void *o) {
    py.Py_DecRef(o);
}
static inline void capi_drop(void **o) {
    capi_unref(*o);
}
/* CAPI_AUTO void *name = capi_attr(o, "name"); a new reference, or NULL, that is given back at the end of its block: while the GIL is
 * held still. */
#define CAPI_AUTO __attribute__((cleanup(capi_drop)))
/* f(...): a new reference, or NULL. f may be NULL. */
#define capi_call(f, ...)                                                                          \
    ({                                                                                             \
        void *f_ = (f);                                                                            \
        f_ ? py.PyObject_CallFunctionObjArgs(f_, ##__VA_ARGS__, NULL) : NULL;                      \
    })
/* Of an int, as a long; `otherwise` where it is none, or NULL. No error is set then. */
static inline long capi_long(void *o, long otherwise) {
    long n = o ? py.PyLong_AsLong(o) : otherwise;
    n = py.PyErr_Occurred() ? otherwise : n;
    py.PyErr_Clear();
    return n;
}
/* A Python int; -1 with a Python error set where it is none. One that is too large is whatever it is. */
static inline int64_t capi_int(void *o) {
    int overflow;
    return py.PyLong_AsLongLongAndOverflow(o, &overflow);
}

/* The C structures that CPython is handed. Part of its ABI since 3.2. */
struct py_method {
    const char *name;
    void *
        fn; /* void *(void *self, void *args), with PY_KEYWORDS (void *self, void *args, void *kwargs) */
    int flags;
    const char *doc;
};
enum { PY_VARARGS = 1, PY_KEYWORDS = 2, PY_NOARGS = 4, PY_ONE = 8, PY_FASTCALL = 0x80 };

struct py_module_def {
    struct {
        ssize_t refcount;
        void *type, *init;
        ssize_t index;
        void *copy;
    } base;
    const char *name, *doc;
    ssize_t size;
    struct py_method *methods;
    void *slots, *traverse, *clear, *free;
};

struct py_slot {
    int slot;
    void *fn;
};
struct py_spec {
    const char *name;
    int basicsize, itemsize;
    unsigned flags;
    struct py_slot *slots;
};
enum { PY_TP_CALL = 50, PY_TP_DEALLOC = 52, PY_TP_METHODS = 64 };
#define PY_TPFLAGS (1u << 18) /* Py_TPFLAGS_DEFAULT before 3.10; without meaning since */

struct py_object { /* 16 bytes on every GIL build */
    ssize_t refcount;
    void *type;
};

#endif
