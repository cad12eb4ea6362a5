/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_lib.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/loaded.h"
#include "agent/core/agent.h"
#include "agent/core/producer.h"
#include "agent/python/capi.h"

struct torch_lib torch_lib;
static uint64_t (*real_add)(struct torch_callback);
static void (*real_remove)(uint64_t);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for torch's list of callbacks */
static int watched, gone; /* the exit handler is registered; has run */

static void at_exit(int status, void *unused __attribute__((unused))) {
    probing_agent_stop("exit", status, EXIT_WAIT_MS);
    pthread_mutex_lock(&lock);
    gone = 1;
    pthread_mutex_unlock(&lock);
}

void torch_lib_add(uint64_t *handle, struct torch_callback cb) {
    pthread_mutex_lock(&lock);
    if (!gone && !*handle && producer_recording() && capi_usable()) {
        __atomic_store_n(handle, real_add(cb), __ATOMIC_RELEASE);
        if (!watched) /* after real_add(), which makes what torch destroys: the last runs first */
            watched = !on_exit(at_exit, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void torch_lib_remove(uint64_t *handle) {
    pthread_mutex_lock(&lock);
    if (!gone && *handle)
        real_remove(*handle);
    __atomic_store_n(handle, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

void torch_lib_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
}

int torch_lib_load(void) {
    struct torch_lib *t = &torch_lib;
    void *h;
    if (t->loaded)
        return t->loaded > 0 ? 0 : -ENOTSUP;
    if (loaded_find("libtorch_cpu.so", &h))
        return -ENOENT;
    const struct loaded_function names[] = {
        {"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", NULL, &real_add, 0},
        {"_ZN2at14removeCallbackEm", NULL, &real_remove, 0},
        {"_ZNK2at14RecordFunction4nameEv", NULL, &t->name, 0},
        {"_ZN2at15sequence_number4peekEv", NULL, &t->peek, 1},
        {"_ZN5torch8autograd32get_current_graph_task_exec_infoEv", NULL, &t->pass, 1},
        {"_ZN3c108GradMode10is_enabledEv", NULL, &t->gradients, 1},
        {"_ZN2at14RecordFunction15currentThreadIdEv", NULL, &t->thread_id, 1},
        {"_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb", NULL, &t->modes, 1},
        {"_ZN2at14RecordFunction9_setAsyncEv", NULL, &t->set_async, 1},
        {"_ZN2at14RecordFunctionC1ENS_11RecordScopeE", NULL, &t->construct, 1},
        {"_ZN2at14RecordFunctionD1Ev", NULL, &t->destroy, 1},
        {"_ZN2at14RecordFunction6beforeEPKcl", NULL, &t->before, 1},
        {"_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapperIKN3c1014FunctionSchemaEEEEl",
         NULL, &t->before_std, 1},
        {"_ZN2at14RecordFunction6beforeESt7variantIJN3c1017basic_string_viewIcEESt17reference_wrapperIKNS2_14FunctionSchemaEEEEl",
         NULL, &t->before_c10, 1},
    };
    t->handle = h;
    t->loaded = loaded_functions(h, names, sizeof names / sizeof *names) ? -1 : 1;
    return t->loaded > 0 ? 0 : -ENOTSUP;
}

int torch_lib_before(void *rf, const char *name, int64_t sequence) {
    const struct torch_lib *t = &torch_lib;
    uint64_t p = (uint64_t)(uintptr_t)name, n = strlen(name);
    if (t->before)
        t->before(rf, name, sequence);
    else if (t->before_std)
        t->before_std(rf, (struct torch_variant){n, p, 0}, sequence);
    else if (t->before_c10)
        t->before_c10(rf, (struct torch_variant){p, n, 0}, sequence);
    else
        return -ENOTSUP;
    return 0;
}
