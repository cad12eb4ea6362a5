/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/cuda_memory.h"

#include <errno.h>

#include "agent/python/capi.h"

#define DEVICES 16

/* References for good: a function of torch's C module, a few strings and small numbers. */
static void *stats;
static void *key_allocated, *key_reserved, *key_all, *key_current, *key_peak;
static void *number[DEVICES];

int cuda_memory_initialised(void) {
    void *flag = capi_attr(capi_module("torch.cuda"), "_initialized");
    int yes = flag == py.True;
    capi_unref(flag);
    return yes;
}

int cuda_memory_find(void) {
    if (stats)
        return 0;
    key_allocated = py.PyUnicode_FromString("allocated_bytes");
    key_reserved = py.PyUnicode_FromString("reserved_bytes");
    key_all = py.PyUnicode_FromString("all");
    key_current = py.PyUnicode_FromString("current");
    key_peak = py.PyUnicode_FromString("peak");
    if (key_allocated && key_reserved && key_all && key_current && key_peak)
        stats = capi_attr(capi_module("torch._C"), "_cuda_memoryStats");
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    return stats ? 0 : -ENOTSUP;
}

static int is_dict(const void *o) {
    return o && py.PyType_IsSubtype(capi_type(o), py.Dict_Type);
}

/* answer[what]["all"][which]; -1: it is not there. */
static int64_t number_at(void *answer, void *what, void *which) {
    void *kinds = py.PyDict_GetItem(answer, what);
    void *values = is_dict(kinds) ? py.PyDict_GetItem(kinds, key_all) : NULL;
    void *value = is_dict(values) ? py.PyDict_GetItem(values, which) : NULL;
    int overflow;
    return value ? py.PyLong_AsLongLongAndOverflow(value, &overflow) : -1;
}

int cuda_memory_read(int device, struct cuda_memory *m) {
    void *answer = NULL;
    *m = (struct cuda_memory){-1, -1, -1};
    if (!stats || device < 0 || device >= DEVICES)
        return -EIO;
    if (!number[device])
        number[device] = py.PyLong_FromLong(device);
    if (number[device])
        answer = py.PyObject_CallFunctionObjArgs(stats, number[device], NULL);
    if (is_dict(answer)) {
        m->allocated = number_at(answer, key_allocated, key_current);
        m->peak = number_at(answer, key_allocated, key_peak);
        m->reserved = number_at(answer, key_reserved, key_current);
    }
    capi_unref(answer);
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    return m->allocated < 0 || m->peak < 0 || m->reserved < 0 ? -EIO : 0;
}
