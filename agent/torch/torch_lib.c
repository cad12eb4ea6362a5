/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/loaded.h"
#include "agent/core/agent.h"
#include "agent/python/capi.h"

#define EXIT_WAIT_MS 3000

struct torch_lib torch_lib;
static uint64_t (*real_add)(struct torch_callback);
static void (*real_remove)(uint64_t);
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* held while torch's list of callbacks is changed */
static int watched, gone;      /* the exit handler is registered; has run */

static void at_exit(void) {
    probing_agent_stop("exit", EXIT_WAIT_MS);
    pthread_mutex_lock(&lock);
    gone = 1;
    pthread_mutex_unlock(&lock);
}

uint64_t torch_lib_add(uint64_t (*add)(struct torch_callback), struct torch_callback cb) {
    uint64_t handle = 0;
    pthread_mutex_lock(&lock);
    if (!gone && capi_usable()) {
        handle = add(cb);
        if (!watched) /* handlers run in reverse order: after the call, which makes what torch destroys */
            watched = !atexit(at_exit);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

void torch_lib_remove(void (*remove)(uint64_t), uint64_t handle) {
    pthread_mutex_lock(&lock);
    if (!gone && handle)
        remove(handle);
    pthread_mutex_unlock(&lock);
}

void torch_lib_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}

static uint64_t add_callback(struct torch_callback cb) {
    return torch_lib_add(real_add, cb);
}

static void remove_callback(uint64_t handle) {
    torch_lib_remove(real_remove, handle);
}

int torch_lib_load(void) {
    struct torch_lib *t = &torch_lib;
    void *h;
    if (t->loaded)
        return t->loaded > 0 ? 0 : -ENOTSUP;
    if (loaded_find("libtorch_cpu.so", &h))
        return -ENOENT;
    const struct {
        const char *name;
        void *to;
        int needed;
    } names[] = {
        {"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", &real_add, 1},
        {"_ZN2at14removeCallbackEm", &real_remove, 1},
        {"_ZNK2at14RecordFunction4nameEv", &t->name, 1},
        {"_ZN2at15sequence_number4peekEv", &t->peek, 0},
        {"_ZN3c108GradMode10is_enabledEv", &t->gradients, 0},
        {"_ZN2at14RecordFunction15currentThreadIdEv", &t->thread_id, 0},
        {"_ZN2at14RecordFunction9_setAsyncEv", &t->set_async, 0},
        {"_ZN2at14RecordFunctionC1ENS_11RecordScopeE", &t->construct, 0},
        {"_ZN2at14RecordFunctionD1Ev", &t->destroy, 0},
        {"_ZN2at14RecordFunction6beforeEPKcl", &t->before, 0},
        {"_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapperIKN3c1014FunctionSchemaEEEEl",
         &t->before2, 0},
    };
    t->loaded = 1;
    t->handle = h;
    t->add_callback = add_callback;
    t->remove_callback = remove_callback;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(h, names[i].name);
        if (!p && names[i].needed)
            t->loaded = -1;
        memcpy(names[i].to, &p, sizeof p);
    }
    if (!t->before2) { /* 2.0 to about 2.7: c10's own view, pointer first */
        t->before2 = dlsym(
            h,
            "_ZN2at14RecordFunction6beforeESt7variantIJN3c1017basic_string_viewIcEESt17reference_"
            "wrapperIKNS2_14FunctionSchemaEEEEl");
        t->before2_order = 1;
    }
    return t->loaded > 0 ? 0 : -ENOTSUP;
}

void *torch_lib_symbol(const char *name) {
    return torch_lib.handle ? dlsym(torch_lib.handle, name) : NULL;
}

/* std::variant<view, reference>: two words and which of them it is. In memory, as its size demands. */
struct variant {
    uint64_t a, b;
    uint8_t index;
};

int torch_lib_before(void *rf, const char *name, int64_t sequence) {
    const struct torch_lib *t = &torch_lib;
    uint64_t p = (uint64_t)(uintptr_t)name, n = strlen(name);
    if (t->before) {
        t->before(rf, name, sequence);
    } else if (t->before2) {
        void (*before)(void *, struct variant, int64_t);
        struct variant v = {t->before2_order ? p : n, t->before2_order ? n : p, 0};
        memcpy(&before, &t->before2, sizeof before);
        before(rf, v, sequence);
    } else {
        return -ENOTSUP;
    }
    return 0;
}
