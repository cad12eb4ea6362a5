/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/cuda_api.h"

#include <errno.h>
#include <stdio.h>

#include "agent/base/loaded.h"
#include "agent/python/capi.h"

struct cuda_api cuda;

int cuda_api_load(char *why, size_t n) {
    struct cuda_api a;
    void *driver = NULL, *torch = NULL;
    const struct loaded_function names[] = {
#define X(name, newer, parameters) {"cu" #name newer, "cu" #name, &a.name, 0},
        CUDA_FUNCTIONS(X)
#undef X
    };
    why[0] = 0;
    if (cuda.CtxGetCurrent)
        return 0;
    if (loaded_find("libc10_cuda.so", NULL))
        return -ECHILD;
    if (loaded_find("libcuda.so", &driver) || loaded_find("libc10_cuda.so", &torch))
        return -ENOENT;
    const struct loaded_function stream[] = {
        {"_ZN3c104cuda20getCurrentCUDAStreamEa", NULL, &a.current_stream, 0},
        {"_ZNK3c104cuda10CUDAStream6streamEv", NULL, &a.stream, 0},
    };
    const char *missing = loaded_functions(driver, names, sizeof names / sizeof *names);
    if (missing) {
        snprintf(why, n, "no GPU times and memory: the CUDA driver lacks %s", missing);
        return -ENOTSUP;
    }
    if (loaded_functions(torch, stream, 2)) {
        snprintf(why, n, "no GPU times: this torch does not tell its current stream");
        a.current_stream = NULL;
    }
    cuda = a;
    return 0;
}

/* ---- memory ---- */

static void *stats; /* a function of torch's C module; the reference is never released */

int cuda_memory_initialised(void) {
    CAPI_AUTO void *flag = capi_attr(capi_module("torch.cuda"), "_initialized");
    return flag == py.True;
}

int cuda_memory_find(void) {
    if (stats)
        return 0;
    stats = capi_attr(capi_module("torch._C"), "_cuda_memoryStats");
    return stats ? 0 : -ENOTSUP;
}

static int is_dict(const void *o) {
    return o && py.PyType_IsSubtype(capi_type(o), py.Dict_Type);
}

/* Returns answer[what]["all"][which], or -1 when it is not there. */
static int64_t number_at(void *answer, const char *what, const char *which) {
    void *kinds = py.PyDict_GetItemString(answer, what);
    void *values = is_dict(kinds) ? py.PyDict_GetItemString(kinds, "all") : NULL;
    void *value = is_dict(values) ? py.PyDict_GetItemString(values, which) : NULL;
    return value ? capi_int(value) : -1;
}

int cuda_memory_read(int device, struct cuda_memory *m) {
    CAPI_AUTO void *number = py.PyLong_FromLong(device);
    CAPI_AUTO void *answer = number ? capi_call(stats, number) : NULL;
    *m = (struct cuda_memory){-1, -1, -1};
    if (is_dict(answer)) {
        m->allocated = number_at(answer, "allocated_bytes", "current");
        m->peak = number_at(answer, "allocated_bytes", "peak");
        m->reserved = number_at(answer, "reserved_bytes", "current");
    }
    py.PyErr_Clear();
    return m->allocated < 0 || m->peak < 0 || m->reserved < 0 ? -EIO : 0;
}
