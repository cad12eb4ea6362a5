/* SPDX-License-Identifier: Apache-2.0 */
#include "pyapi.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "pymodule.h"

#define WORKS 8

static struct pyapi api;
static int loaded;                                   /* (a) */
static uint32_t on_its_way;                          /* (a) a pending call has been queued */
static void (*works[WORKS])(const struct pyapi *py); /* (a) what it is to run */

static int (*is_initialized)(void);

int pyapi_load(void *handle, uint32_t version) {
    const struct {
        const char *name;
        void *to;
    } names[] = {
#define X(result, name, parameters) {#name, &api.name},
        PYAPI(X)
#undef X
    };
    if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE))
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(handle, names[i].name);
        if (!p)
            return -ENOTSUP;
        memcpy(names[i].to, &p, sizeof p);
    }
    api.cfunction_type = dlsym(handle, "PyCFunction_Type");
    api.version = version;
    if (!api.cfunction_type)
        return -ENOTSUP;
    void *finalizing = dlsym(handle, "Py_IsFinalizing");
    if (!finalizing)
        finalizing = dlsym(handle, "_Py_IsFinalizing"); /* 3.7 to 3.12 */
    memcpy(&api.IsFinalizing, &finalizing, sizeof finalizing);
    void *initialized = dlsym(handle, "Py_IsInitialized");
    memcpy(&is_initialized, &initialized, sizeof initialized);
    __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Without an interpreter Py_AddPendingCall() would follow a null pointer. */
static int is_up(void) {
    return is_initialized && is_initialized() && !(api.IsFinalizing && api.IsFinalizing());
}

const struct pyapi *pyapi_get(void) {
    return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE) ? &api : NULL;
}

static int run_works(void *unused) {
    void *type, *value, *traceback;
    (void)unused;
    __atomic_store_n(&on_its_way, 0, __ATOMIC_RELEASE);
    api.PyErr_Fetch(&type, &value, &traceback);
    for (unsigned i = 0; i < WORKS; i++) {
        void (*work)(const struct pyapi *) = __atomic_exchange_n(&works[i], NULL, __ATOMIC_ACQ_REL);
        if (!work)
            continue;
        work(&api);
        if (api.PyErr_Occurred())
            api.PyErr_Clear();
    }
    api.PyErr_Restore(type, value, traceback);
    return 0;
}

static void run_works_here(void) {
    run_works(NULL);
}

int pyapi_moment(void (*work)(const struct pyapi *py)) {
    unsigned free_one = WORKS;
    int rc;
    if (!pyapi_get() || !is_up())
        return -EAGAIN;
    for (unsigned i = 0; i < WORKS; i++) {
        void *w = (void *)(uintptr_t)__atomic_load_n(&works[i], __ATOMIC_ACQUIRE);
        if (w == (void *)(uintptr_t)work)
            free_one = i;
        else if (!w && free_one == WORKS)
            free_one = i;
    }
    if (free_one == WORKS)
        return -ENOSPC;
    __atomic_store_n(&works[free_one], work, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&on_its_way, 1, __ATOMIC_ACQ_REL))
        return 0;
    /* At its end 3.8 prints an error from here, which takes the GIL that we do not have. */
    if (api.version >> 16 == 0x0308)
        rc = pymodule_with_gil(run_works_here);
    else
        rc = api.Py_AddPendingCall(run_works, NULL);
    if (rc)
        __atomic_store_n(&on_its_way, 0, __ATOMIC_RELEASE);
    return rc ? -EAGAIN : 0;
}

int pyapi_text(const struct pyapi *py, void *str, char *buf, size_t n) {
    char *text;
    ssize_t len;
    int rc = -EINVAL;
    void *bytes = str ? py->PyUnicode_AsUTF8String(str) : NULL;
    buf[0] = 0;
    if (bytes && !py->PyBytes_AsStringAndSize(bytes, &text, &len)) {
        rc = (size_t)len < n ? (int)len : (int)n - 1;
        memcpy(buf, text, (size_t)rc);
        buf[rc] = 0;
    }
    if (bytes)
        py->Py_DecRef(bytes);
    if (py->PyErr_Occurred())
        py->PyErr_Clear();
    return rc;
}

void *pyapi_attr(const struct pyapi *py, void *object, const char *name) {
    void *p = object ? py->PyObject_GetAttrString(object, name) : NULL;
    if (object && !p)
        py->PyErr_Clear();
    return p;
}

void *pyapi_module(const struct pyapi *py, const char *name) {
    void *modules = py->PyImport_GetModuleDict();
    void *module = modules ? py->PyDict_GetItemString(modules, name) : NULL;
    void *spec = pyapi_attr(py, module, "__spec__");
    void *initializing = pyapi_attr(py, spec, "_initializing");
    if (initializing && py->PyObject_IsTrue(initializing) != 0)
        module = NULL;
    if (initializing)
        py->Py_DecRef(initializing);
    if (spec)
        py->Py_DecRef(spec);
    return module;
}
