/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_lib.h - what the torch parts call of PyTorch's C++ side, found by name in the running process.
 *
 *     if (!torch_lib_load()) torch_lib.peek()                      // any thread
 *
 * Loading may wait for the dynamic loader's lock: service thread only.
 */
#ifndef PROBING_AGENT_TORCH_LIB_H
#define PROBING_AGENT_TORCH_LIB_H

#include <stdint.h>

/* A callback of at::RecordFunction; passed by value, 40 bytes. */
struct torch_callback {
    void *start, *end;
    double probability;
    uint8_t scopes[10];
    uint8_t inputs, outputs, ids;
};
enum {
    TORCH_SCOPE_BACKWARD = 1,
    TORCH_SCOPE_UNUSED = 5, /* BUILD_FEATURE: of builds that trace themselves */
    TORCH_SCOPE_USER = 7
};

struct torch_lib {
    int loaded;   /* 0 not tried, 1 there, -1 not usable */
    void *handle; /* libtorch_cpu's, once loaded */
    /* torch's own state is destroyed while the process exits, and whoever changes callbacks then corrupts memory. So the first
     * callback also registers an exit handler, which runs before torch's destructors: it ends the recording, and from then on
     * nothing is added (the handle is 0) or removed. Any thread; not async-signal-safe. */
    uint64_t (*add_callback)(struct torch_callback);
    void (*remove_callback)(uint64_t);
    const char *(*name)(const void *rf);
    uint64_t (*peek)(void);
    uint8_t (*gradients)(void);  /* false within torch.no_grad(); NULL: not known */
    uint64_t (*thread_id)(void); /* of the calling thread, from 1 on; autograd's nodes have it */
    /* a mode of __torch_dispatch__ is on (1: not torch's own); NULL: not known */
    uint8_t (*modes)(uint8_t user);
    void (*set_async)(void *rf);
    void (*construct)(void *rf, uint8_t scope);
    void (*destroy)(void *rf);
    void (*before)(void *rf, const char *name, int64_t sequence); /* 1.x */
    void *before2;                                                /* 2.x: takes a variant */
    int before2_order; /* of the view in it: 0 length first, 1 pointer first */
};
extern struct torch_lib torch_lib;

/* In a forked child; async-signal-safe. */
void torch_lib_after_fork(void);

/* 0; -ENOENT libtorch_cpu.so is not there (yet); -ENOTSUP it lacks what everything here needs. */
int torch_lib_load(void);
/* RecordFunction::before() of any version: 0 or -ENOTSUP. */
int torch_lib_before(void *rf, const char *name, int64_t sequence);

#endif
