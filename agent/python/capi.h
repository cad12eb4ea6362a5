/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capi.h - the part of CPython's C API that the agent uses, found by name in the running interpreter: the agent links no
 * libpython and includes no Python.h, so that one build serves 3.6 and later.
 *
 *     if (capi_load(NULL)) return;                   // no Python here, or one that lacks something
 *     void *name = py.PyUnicode_FromString("loss");
 *
 * All parts of the agent share the table `py`. Its functions are of the stable ABI, or every version from 3.6 to 3.15 exports them; a function
 * that only some versions have is NULL in the others. Objects are void *. Callers hold the GIL where CPython's documentation demands it;
 * gil.h runs functions of ours in a thread that holds it.
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
    X(void *, PyUnicode_DecodeFSDefault, (const char *)) /* as os.fsdecode() */                    \
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
    X(void *, PyThreadState_Get, (void))           /* all versions */                              \
    X(void *, PyThreadState_New, (void *))         /* all versions; for the next one's result */   \
    X(void *, PyInterpreterState_Main, (void))     /* 3.7 */                                       \
    X(void, PyThreadState_EnterTracing, (void *))  /* 3.11 */                                      \
    X(void, PyThreadState_LeaveTracing, (void *))                                                  \
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
    X(TypeError, PyExc_TypeError) /* from here on, variables that point to the objects */          \
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

/* Fills in `py`, once. `found` is the result of agent_python_find(), or NULL: then it is called here. Returns 0; -ENOENT: no Python; -EAGAIN: not
 * initialised yet; -ENOTSUP: not a supported Python. Any thread, no GIL needed; waits for the dynamic loader's lock. */
struct agent_python;
int capi_load(const struct agent_python *found);
/* Whether a capi_load() has succeeded. Any thread; async-signal-safe. */
static inline int capi_loaded(void) {
    return __atomic_load_n(&py.version, __ATOMIC_ACQUIRE) != 0;
}
/* Whether Python is initialised and not finalising, so that PyGILState_Ensure() may be called. Any thread, no GIL needed. */
int capi_usable(void);

/* Begins code of ours at an arbitrary place of the program: takes the GIL unless this thread holds it, and saves the exception that is set, if any. */
struct capi_state {
    int held, gil;
    void *error[3];
};
void capi_enter(struct capi_state *s);
/* Restores the state that capi_enter() found; an exception that is set now is dropped. */
void capi_leave(const struct capi_state *s);

/* Attribute as a new reference, or NULL with no exception set. `object` may be NULL. */
void *capi_attr(void *object, const char *name);
/* Calls fn for the class and for every class derived from it until fn returns non-zero. Returns that value, or 0. GIL held. */
int capi_classes(void *class, int (*fn)(void *class));
/* sys.modules[name], borrowed; NULL when it is not there or its import is still going on: a pending call may come in the middle
 * of an import, when half of an extension is not initialised and calling it crashes. */
void *capi_module(const char *name);
/* The C function behind a built-in function. Depending on its calling convention CPython passes all four arguments, or only the first two or three. */
typedef void *capi_function(void *self, void *args, ssize_t n, void *names);
/* Puts `ours` into the definition (writable data) of a built-in function of a module (which may be NULL) whose calling convention is `flags`. Returns
 * the previous C function, which `ours` has to call with the arguments it was given; NULL: there is no such function with these flags. */
capi_function *capi_replace(void *module, const char *name, int flags, capi_function *ours);
/* static CAPI_KEPT void *name: a pointer to an object that is kept. Reset to NULL when Python ends: a program that embeds Python may start it again. */
#define CAPI_KEPT __attribute__((section("capi_kept")))
/* To be called before such a pointer is set, unless its object comes from capi_run(). With the GIL. */
void capi_keep(void);
/* Runs Python source of ours in a new namespace. Returns that namespace (a dict, a new reference), or NULL with a Python error set. */
void *capi_run(const char *source);

/* Offsets of fields that no API function returns, in 64-bit GIL builds. An offset that names no version is the same in all of them.
 * tests/e2e/test_capi_places.py compares them with the headers of every Python at hand. */
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
/* The object that a weak reference refers to; None when that object is gone. */
static inline void *capi_weak(const void *r) {
    return *(void *const *)capi_at(r, CAPI_WR_OBJECT);
}
/* The UTF-8 text of a str, which the str owns; NULL with a Python error set. */
static inline const char *capi_utf8(void *str) {
    return py.PyUnicode_AsUTF8AndSize(str, NULL);
}
/* capi_ref() and capi_unref() ignore NULL, as Py_IncRef() and Py_DecRef() do. */
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
/* CAPI_AUTO void *name = capi_attr(o, "name"); declares a variable whose reference, unless NULL, is released at the end of its block. The GIL
 * must still be held there. */
#define CAPI_AUTO __attribute__((cleanup(capi_drop)))
/* Calls f(...). Returns a new reference, or NULL. f may be NULL. */
#define capi_call(f, ...)                                                                          \
    ({                                                                                             \
        void *f_ = (f);                                                                            \
        f_ ? py.PyObject_CallFunctionObjArgs(f_, ##__VA_ARGS__, NULL) : NULL;                      \
    })
/* The value of a Python int as a long; `otherwise` if o is NULL or no int that fits. Leaves no Python error set. */
static inline long capi_long(void *o, long otherwise) {
    long n = o ? py.PyLong_AsLong(o) : otherwise;
    n = py.PyErr_Occurred() ? otherwise : n;
    py.PyErr_Clear();
    return n;
}
/* The value of a Python int; -1 with a Python error set if o is no int. For an int that is too large the result has no meaning. */
static inline int64_t capi_int(void *o) {
    int overflow;
    return py.PyLong_AsLongLongAndOverflow(o, &overflow);
}
/* Sets a Python error. Returns NULL. */
static inline void *capi_error(void *type, const char *text) {
    py.PyErr_SetString(type, text);
    return NULL;
}

/* C structures that are passed to CPython. Part of its ABI since 3.2. */
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
