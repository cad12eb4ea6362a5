/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake CUDA driver and a fake libc10_cuda.so: the tests copy this library to both names, load both, and tell both which context and
 * stream are current (the copies share nothing; a stream's handle is its number). It replaces a GPU, because the tests run without one;
 * tests/gpu/check.py is for real ones. It tests the agent: which functions it calls, when, and from which thread, and that the time
 * between two events comes out of the database as it went in.
 *
 * The GPU: each stream executes one after the other what it is given, by the GPU's clock. fake_launch(ns) launches a kernel of so many
 * nanoseconds into the thread's current stream; it begins when the stream is free, and not before it was launched. An event gets its time
 * when the stream comes to it, and before that a query says "not ready". While fake_hold(1) holds the GPU, its clock stands still: so it
 * never waits for the host, however long that takes to launch what comes next. The functions that wait for a GPU exist, too, and count
 * their calls: the agent must not call them.
 *
 * The build makes it a shared library. Its state is that of one process; it has a lock, because several threads call it.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 64
#define EVENTS  100000

enum {
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    BAD_HANDLE = 400,
    NOT_READY = 600,
    UNSUPPORTED = 900,
    IMPLICIT = 906
};
enum { RELAXED = 2 };

struct event {
    uint64_t at; /* when the stream comes to it, ns; 0: never recorded */
    int device;
};

struct stream {
    uint64_t free_at;
    int capturing;
};

/* Counters that the tests ask for, under names that test_torch_cuda.py knows. */
static struct counters {
    uint64_t contexts, records, queries, elapsed, made, waits, captured, in_child, wrong_context,
        unrelaxed, spent_ns, errors, not_ready;
} n;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS];
static struct stream
    streams[STREAMS]; /* device * 8 + number in it; 0 of each is the default stream */
static int capturing_all, error_code, error_after, owner, cost_ns;
static uint64_t held_at,
    stood; /* since when its clock stands, 0: it goes; ns that it stood before */
static char contexts[16];
static _Thread_local int context = -1, stream_number, mode;

#define API(result) __attribute__((visibility("default"))) result

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The GPU's clock. */
static uint64_t gpu_now(void) {
    uint64_t held = __atomic_load_n(&held_at, __ATOMIC_ACQUIRE);
    return (held ? held : now()) - __atomic_load_n(&stood, __ATOMIC_RELAXED);
}

/* Counts a call of the driver, also one in a child or one that fails, and takes the time that it costs. */
static int called(void) {
    uint64_t from = now();
    if (owner && owner != getpid())
        __atomic_fetch_add(&n.in_child, 1, __ATOMIC_RELAXED);
    if (error_code && __atomic_fetch_sub(&error_after, 1, __ATOMIC_RELAXED) <= 0) {
        __atomic_fetch_add(&n.errors, 1, __ATOMIC_RELAXED);
        return error_code;
    }
    while (cost_ns && now() - from < (uint64_t)cost_ns)
        ;
    __atomic_fetch_add(&n.spent_ns, now() - from, __ATOMIC_RELAXED);
    return 0;
}

static struct stream *stream_of(void *handle) {
    return &streams[handle ? (int)(uintptr_t)handle : context * 8];
}

/* ---- for the tests ---- */

API(void) fake_context(int device);
API(void) fake_stream(int number);
API(void) fake_launch(uint64_t ns);
API(void) fake_launch_on(int stream, uint64_t ns);
API(void) fake_hold(int on);
API(void) fake_capture(int on);
API(void) fake_error(int code, int after);
API(void) fake_cost(int ns);
API(void) fake_counters(struct counters *out);
API(void) fake_wait(void);

/* Gives the thread a context, as its first use of torch.cuda does. -1: none. */
void fake_context(int device) {
    context = device;
    owner = getpid();
}

void fake_stream(int number) {
    stream_number = number;
}

void fake_launch(uint64_t ns) {
    fake_launch_on(context * 8 + stream_number, ns);
}

void fake_launch_on(int stream, uint64_t ns) {
    struct stream *s = &streams[stream];
    pthread_mutex_lock(&lock);
    uint64_t t = gpu_now();
    s->free_at = (s->free_at > t ? s->free_at : t) + ns;
    pthread_mutex_unlock(&lock);
}

/* Stops the GPU until it is released. A thread that reads the time between the two stores gets an earlier time. */
void fake_hold(int on) {
    pthread_mutex_lock(&lock);
    if (on) {
        __atomic_store_n(&held_at, now(), __ATOMIC_RELEASE);
    } else {
        __atomic_fetch_add(&stood, now() - held_at, __ATOMIC_RELAXED);
        __atomic_store_n(&held_at, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

/* From now on, captures the thread's current stream into a graph, in the global mode. */
void fake_capture(int on) {
    streams[context * 8 + stream_number].capturing = on;
    capturing_all = on;
}

/* From now on the driver's calls fail with this code, after `after` more calls. */
void fake_error(int code, int after) {
    error_after = after;
    error_code = code;
}

void fake_cost(int ns) {
    cost_ns = ns;
}

void fake_counters(struct counters *out) {
    *out = n;
}

/* For the program itself: waits until the GPU has finished everything. */
void fake_wait(void) {
    uint64_t until = 0;
    for (int i = 0; i < STREAMS; i++)
        until = streams[i].free_at > until ? streams[i].free_at : until;
    while (gpu_now() < until)
        usleep(500);
}

/* ---- libcuda.so.1 ---- */

API(int) cuCtxGetCurrent(void **out);
API(int) cuCtxGetDevice(int *device);
API(int) cuCtxSetCurrent(void *to);
API(int) cuStreamCreate(void **stream, unsigned flags);
API(int) cuEventCreate(void **event, unsigned flags);
API(int) cuEventRecord(void *event, void *stream);
API(int) cuEventQuery(void *event);
API(int) cuEventElapsedTime(float *ms, void *start, void *end);
API(int) cuStreamIsCapturing(void *stream, int *status);
API(int) cuThreadExchangeStreamCaptureMode(int *m);
API(int) cuEventSynchronize(void *event);
API(int) cuStreamSynchronize(void *stream);
API(int) cuCtxSynchronize(void);
API(int) cuStreamWaitEvent(void *stream, void *event, unsigned flags);

int cuCtxGetCurrent(void **out) {
    int rc = called();
    __atomic_fetch_add(&n.contexts, 1, __ATOMIC_RELAXED);
    *out = context < 0 ? NULL : &contexts[context];
    return rc ? rc : owner ? 0 : NOT_INITIALIZED;
}

int cuCtxGetDevice(int *device) {
    *device = context;
    return called();
}

/* The last stream of a device is the driver's own. */
int cuCtxSetCurrent(void *to) {
    context = to ? (int)((char *)to - contexts) : -1;
    return called();
}

int cuStreamCreate(void **stream, unsigned flags) {
    *stream = (void *)(uintptr_t)(context * 8 + 7);
    (void)flags;
    return called();
}

/* Such a call is forbidden while any thread captures in the global mode, because the capture would be lost; except in the relaxed mode. */
static int unsafe(void) {
    if (!capturing_all || mode == RELAXED)
        return 0;
    __atomic_fetch_add(&n.unrelaxed, 1, __ATOMIC_RELAXED);
    return UNSUPPORTED;
}

int cuEventCreate(void **event, unsigned flags) {
    int rc = called();
    uint64_t i = __atomic_fetch_add(&n.made, 1, __ATOMIC_RELAXED);
    if (!rc)
        rc = unsafe();
    if (flags || i >= EVENTS)
        abort();
    events[i].device = context;
    *event = &events[i];
    return rc;
}

int cuEventRecord(void *event, void *stream) {
    struct event *e = event;
    struct stream *s = stream_of(stream);
    int rc = called();
    if (!rc)
        rc = unsafe();
    if (rc)
        return rc;
    __atomic_fetch_add(&n.records, 1, __ATOMIC_RELAXED);
    if (s->capturing)
        __atomic_fetch_add(&n.captured, 1, __ATOMIC_RELAXED);
    if (context < 0 || e->device != context || (s - streams) / 8 != context) {
        __atomic_fetch_add(&n.wrong_context, 1, __ATOMIC_RELAXED);
        return BAD_HANDLE;
    }
    pthread_mutex_lock(&lock);
    uint64_t t = gpu_now();
    e->at = s->free_at > t ? s->free_at : t;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuEventQuery(void *event) {
    struct event *e = event;
    int rc = called();
    __atomic_fetch_add(&n.queries, 1, __ATOMIC_RELAXED);
    if (!rc)
        rc = unsafe();
    if (rc)
        return rc;
    if (e->device != context)
        __atomic_fetch_add(&n.wrong_context, 1, __ATOMIC_RELAXED);
    if (e->at <= gpu_now())
        return 0;
    __atomic_fetch_add(&n.not_ready, 1, __ATOMIC_RELAXED);
    return NOT_READY;
}

int cuEventElapsedTime(float *ms, void *start, void *end) {
    const struct event *a = start, *b = end;
    int rc = called();
    __atomic_fetch_add(&n.elapsed, 1, __ATOMIC_RELAXED);
    if (rc)
        return rc;
    if (a->device != b->device || !a->at || !b->at) {
        __atomic_fetch_add(&n.wrong_context, 1, __ATOMIC_RELAXED);
        return BAD_HANDLE;
    }
    if (a->at > gpu_now() || b->at > gpu_now())
        return NOT_READY;
    *ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status) {
    int rc = called();
    *status = stream_of(stream)->capturing;
    return rc ? rc : !stream && capturing_all && !*status ? IMPLICIT : 0;
}

int cuThreadExchangeStreamCaptureMode(int *m) {
    int old = mode;
    mode = *m;
    *m = old;
    return called();
}

static int waited(void) {
    __atomic_fetch_add(&n.waits, 1, __ATOMIC_RELAXED);
    return 0;
}

int cuEventSynchronize(void *event) {
    (void)event;
    return waited();
}

int cuStreamSynchronize(void *stream) {
    (void)stream;
    return waited();
}

int cuCtxSynchronize(void) {
    return waited();
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    return waited();
}

/* ---- libc10_cuda.so ---- */

struct cuda_stream {
    int8_t type, device;
    int64_t id;
};

API(struct cuda_stream) get_current(int8_t device) __asm__("_ZN3c104cuda20getCurrentCUDAStreamEa");
API(void *) get_stream(const struct cuda_stream *s) __asm__("_ZNK3c104cuda10CUDAStream6streamEv");

struct cuda_stream get_current(int8_t device) {
    if (device < 0 || device != context) /* torch's would throw */
        abort();
    return (struct cuda_stream){1, device, stream_number};
}

void *get_stream(const struct cuda_stream *s) {
    if (s->type != 1 || s->device < 0)
        abort();
    return s->id ? (void *)(uintptr_t)(s->device * 8 + s->id) : NULL;
}
