/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_api.h - the few functions of the CUDA driver that the agent calls, and torch's current stream, found in the libraries that the
 * program has loaded itself (libcuda.so.1, libc10_cuda.so): nothing is loaded here, and no header of theirs is needed.
 *
 *     if (!cuda_api_load(why, n)) cuda.CtxGetCurrent(&context);
 *
 * The driver's C interface is stable: the meaning of a name never changes. Two functions of torch are called by their C++ names, which
 * are the same in the CUDA builds of 1.13, 2.13 and 2.15 (tried in that of 2.13, with a runtime that simulates two devices):
 *
 *   c10::cuda::getCurrentCUDAStream(int8 device) -> CUDAStream      by value, 16 bytes, so in two registers
 *   c10::cuda::CUDAStream::stream() const -> CUstream
 *
 * Both may throw a C++ exception when the device does not exist, which C code cannot catch: call them with the device of a context that
 * is current, and only once torch itself has initialised CUDA. None of these functions waits for the GPU.
 */
#ifndef PROBING_AGENT_CUDA_API_H
#define PROBING_AGENT_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

enum cuda_result {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_DEINITIALIZED = 4, /* the program is ending */
    CUDA_INVALID_CONTEXT = 201,
    CUDA_INVALID_HANDLE = 400, /* for instance of a context that was destroyed */
    CUDA_NOT_READY = 600,
    CUDA_CONTEXT_IS_DESTROYED = 709,
    CUDA_CAPTURE_FIRST = 900, /* forbidden while some stream is being captured into a graph */
    CUDA_CAPTURE_LAST = 908,
};
enum { CUDA_CAPTURE_RELAXED = 2, CUDA_STREAM_NON_BLOCKING = 1 };

/* The layout of c10::cuda::CUDAStream: a c10::Device and a number. */
struct cuda_stream {
    int8_t type, device;
    int64_t id;
};

#define CUDA_FUNCTIONS(X) /* name, its suffix in newer drivers, parameters */                      \
    X(CtxGetCurrent, "", (void **context))                                                         \
    X(CtxGetDevice, "", (int *device))                                                             \
    X(CtxSetCurrent, "", (void *context))                                                          \
    X(StreamCreate, "", (void **stream, unsigned flags))                                           \
    X(EventCreate, "", (void **event, unsigned flags))                                             \
    X(EventRecord, "", (void *event, void *stream))                                                \
    X(EventQuery, "", (void *event))                                                               \
    X(EventElapsedTime, "_v2", (float *ms, void *start, void *end))                                \
    X(StreamIsCapturing, "", (void *stream, int *status)) /* 0: it is not */                       \
    X(ThreadExchangeStreamCaptureMode, "", (int *mode))

struct cuda_api {
#define X(name, newer, parameters) int(*name) parameters;
    CUDA_FUNCTIONS(X)
#undef X
    struct cuda_stream (*current_stream)(int8_t device); /* NULL: this torch lacks it */
    void *(*stream)(const struct cuda_stream *s);
};
extern struct cuda_api cuda;

/* Finds the functions. Returns 0; -ENOENT: the libraries are not all loaded yet; -ECHILD: there is no libc10_cuda.so (a torch without CUDA);
 * -ENOTSUP: `why` says what is missing, as it does where `current_stream` is NULL. Service thread: may wait for the dynamic loader's lock. */
int cuda_api_load(char *why, size_t n);

/*
 * GPU memory as torch's allocator reports it, by torch._C._cuda_memoryStats(device): the function behind
 * torch.cuda.memory_allocated(), without the latter's sorting of a hundred numbers. It reads counters, changes nothing and
 * does not access the GPU. To be called with the GIL held and no Python exception set; sets no exception.
 */
struct cuda_memory {
    int64_t allocated, peak, reserved; /* bytes */
};

/* Returns 1 when torch.cuda is initialised in this process. */
int cuda_memory_initialised(void);
/* Finds that function. Returns 0, or -ENOTSUP when this torch lacks it. */
int cuda_memory_find(void);
/* Returns 0, or -EIO when the function raised an error or its result has another structure. */
int cuda_memory_read(int device, struct cuda_memory *m);

#endif
