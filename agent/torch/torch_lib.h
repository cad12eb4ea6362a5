/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_lib.h - the functions of PyTorch's C++ side that the torch parts call, found by name in the running process.
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

/* std::variant<string view, reference>: two words, and which alternative it is. std's view has its length first, c10's the pointer. */
struct torch_variant {
    uint64_t a, b;
    uint8_t index;
};

struct torch_lib {
    int loaded;   /* 0 not tried, 1 there, -1 not usable */
    void *handle; /* libtorch_cpu's, once loaded */
    const char *(*name)(const void *rf);
    uint64_t (*peek)(void);
    const void *(*pass)(void); /* of the calling thread's backward pass, or NULL; NULL: not known */
    uint8_t (*gradients)(void);  /* false within torch.no_grad(); NULL: not known */
    uint64_t (*thread_id)(void); /* of the calling thread, from 1 on; autograd's nodes have it */
    /* a mode of __torch_dispatch__ is on (1: not torch's own); NULL: not known */
    uint8_t (*modes)(uint8_t user);
    void (*set_async)(void *rf);
    void (*construct)(void *rf, uint8_t scope);
    void (*destroy)(void *rf);
    /* RecordFunction::before(): the one of 1.x; of 2.x; of 2.0 to about 2.7 */
    void (*before)(void *rf, const char *name, int64_t sequence);
    void (*before_std)(void *rf, struct torch_variant v, int64_t sequence);
    void (*before_c10)(void *rf, struct torch_variant v, int64_t sequence);
};
extern struct torch_lib torch_lib;

/* In a forked child; async-signal-safe. */
void torch_lib_after_fork(void);

/* Returns 0; -ENOENT: libtorch_cpu.so is not loaded (yet); -ENOTSUP: it lacks functions that are always needed here. */
int torch_lib_load(void);
/*
 * Adds a callback, unless *handle (a) is one's already or nothing is recorded; removes it. *handle is 0 while there is none. Any thread; not async-signal-safe.
 * torch's own state is destroyed while the process exits, and changing callbacks after that corrupts memory. So adding the first callback
 * also registers an exit handler, which runs before torch's destructors: it ends the recording, and from then on nothing is added or removed.
 */
void torch_lib_add(uint64_t *handle, struct torch_callback cb);
void torch_lib_remove(uint64_t *handle);
/* Calls RecordFunction::before() of whichever version there is. Returns 0 or -ENOTSUP. */
int torch_lib_before(void *rf, const char *name, int64_t sequence);

#endif
