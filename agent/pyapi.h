/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyapi.h - the part of CPython's C API that the agent uses inside the target, found by name at run time, and moments at which
 * it may be used.
 *
 *     const struct pyapi *py = pyapi_get();                 // NULL: not found (yet)
 *     pyapi_moment(work);                                   // work() runs soon in the main thread, between two bytecodes,
 *                                                           // with the GIL held and no exception set
 *
 * A moment is Py_AddPendingCall: nobody waits for it, no thread is made and no lock taken; while the main
 * thread is in C code it comes late. Objects are void *. All functions need the GIL, moments excepted.
 */
#ifndef PROBING_AGENT_PYAPI_H
#define PROBING_AGENT_PYAPI_H

#include <stdint.h>
#include <sys/types.h>

/* X(result, name without Py, (parameters)): the stable ABI's own names */
#define PYAPI(X)                                                                                   \
    X(int, Py_AddPendingCall, (int (*)(void *), void *))                                           \
    X(void, Py_IncRef, (void *))                                                                   \
    X(void, Py_DecRef, (void *))                                                                   \
    X(void *, PyImport_GetModuleDict, (void))                                                      \
    X(void *, PyDict_GetItemString, (void *, const char *))                                        \
    X(void *, PyDict_GetItem, (void *, void *))                                                    \
    X(int, PyDict_Next, (void *, ssize_t *, void **, void **))                                     \
    X(void *, PyObject_GetAttrString, (void *, const char *))                                      \
    X(int, PyObject_SetAttrString, (void *, const char *, void *))                                 \
    X(void *, PyObject_CallMethod, (void *, const char *, const char *, ...))                      \
    X(void *, PyObject_CallFunction, (void *, const char *, ...))                                  \
    X(void *, PyObject_Str, (void *))                                                              \
    X(void *, PyObject_Type, (void *))                                                             \
    X(int, PyObject_IsTrue, (void *))                                                              \
    X(void *, PyUnicode_AsUTF8String, (void *))                                                    \
    X(int, PyBytes_AsStringAndSize, (void *, char **, ssize_t *))                                  \
    X(void *, PyLong_FromLong, (long))                                                             \
    X(long, PyLong_AsLong, (void *))                                                               \
    X(void *, PyLong_AsVoidPtr, (void *))                                                          \
    X(ssize_t, PyObject_Size, (void *))                                                            \
    X(void *, PySys_GetObject, (const char *))                                                     \
    X(void *, PyErr_Occurred, (void))                                                              \
    X(void, PyErr_Clear, (void))                                                                   \
    X(void, PyErr_Fetch, (void **, void **, void **))                                              \
    X(void, PyErr_Restore, (void *, void *, void *))

struct pyapi {
#define X(result, name, parameters) result(*name) parameters;
    PYAPI(X)
#undef X
    void *cfunction_type;      /* PyCFunction_Type */
    int (*IsFinalizing)(void); /* NULL in 3.6. Needs no GIL */
    uint32_t version;          /* PY_VERSION_HEX */
};

/* Service thread, when CPython was found (`handle`: for dlsym). 0 or -ENOTSUP. */
int pyapi_load(void *handle, uint32_t version);
/* NULL before a pyapi_load() that went well. Any thread. */
const struct pyapi *pyapi_get(void);

/* Asks for a moment; `work` must not block. At most one is on its way: it runs all that was asked for meanwhile, each once.
 * 0; -EAGAIN: no Python yet, or its queue is full; -ENOSPC: more than 8 different works. Any thread, with or without the GIL. */
int pyapi_moment(void (*work)(const struct pyapi *py));

/* Text of a str (other objects: -EINVAL), cut to n - 1 bytes; no exception stays set. Returns its length. */
int pyapi_text(const struct pyapi *py, void *str, char *buf, size_t n);
/* Attribute as a new reference, or NULL with no exception set. `object` may be NULL. */
void *pyapi_attr(const struct pyapi *py, void *object, const char *name);
/* sys.modules[name], borrowed; NULL when it is not there or its import is still going on: a moment may come in the middle
 * of an import, when half of an extension is not initialised and calling it crashes. */
void *pyapi_module(const struct pyapi *py, const char *name);

#endif
