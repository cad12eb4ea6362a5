/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/cuda_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/loaded.h"

struct cuda_api cuda;

int cuda_api_load(char *why, size_t n) {
    struct cuda_api a;
    void *driver = NULL, *torch = NULL;
    const struct {
        const char *name, *older;
        void *to;
    } names[] = {
        {"cuCtxGetCurrent", NULL, &a.CtxGetCurrent},
        {"cuCtxGetDevice", NULL, &a.CtxGetDevice},
        {"cuEventCreate", NULL, &a.EventCreate},
        {"cuEventRecord", NULL, &a.EventRecord},
        {"cuEventQuery", NULL, &a.EventQuery},
        {"cuEventElapsedTime_v2", "cuEventElapsedTime", &a.EventElapsedTime},
        {"cuStreamIsCapturing", NULL, &a.StreamIsCapturing},
        {"cuThreadExchangeStreamCaptureMode", NULL, &a.ThreadExchangeStreamCaptureMode},
    };
    why[0] = 0;
    if (cuda.CtxGetCurrent)
        return 0;
    if (loaded_find("libc10_cuda.so", NULL))
        return -ECHILD;
    if (loaded_find("libcuda.so", NULL) || loaded_find("libcuda.so", &driver) ||
        loaded_find("libc10_cuda.so", &torch))
        return -ENOENT;
    memset(&a, 0, sizeof a);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(driver, names[i].name);
        if (!p && names[i].older)
            p = dlsym(driver, names[i].older);
        if (!p) {
            snprintf(why, n, "no GPU times and memory: the CUDA driver lacks %s", names[i].name);
            dlerror();
            return -ENOTSUP;
        }
        memcpy(names[i].to, &p, sizeof p);
    }
    void *current = dlsym(torch, "_ZN3c104cuda20getCurrentCUDAStreamEa");
    void *stream = dlsym(torch, "_ZNK3c104cuda10CUDAStream6streamEv");
    if (current && stream) {
        memcpy(&a.current_stream, &current, sizeof current);
        memcpy(&a.stream, &stream, sizeof stream);
    } else {
        snprintf(why, n, "no GPU times: this torch does not tell its current stream");
    }
    dlerror(); /* the program is not to find our error */
    cuda = a;
    return 0;
}
