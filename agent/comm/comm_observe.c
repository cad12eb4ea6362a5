/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_observe.c - sees the completion of operations, by a global RecordFunction callback of USER scope, in C.
 *
 * For a send or receive, the backend begins a RecordFunction in the function that comm_wrap.c wraps; for a collective, a thread of the backend begins it when
 * it executes the operation (comm_executing() finds which). The start callback returns the operation, which begins like an at::ObserverContext (with a pointer
 * to a vtable of two destructors): torch passes it to the end callback on whatever thread completes the operation, and then destroys it, which does nothing.
 * For any other USER event, only the name is compared. The first operation of a recording registers the callback, so a program that does not communicate has
 * none; it is removed when the recording ends. A RecordFunction that has begun by then still ends here, because torch keeps in it the callbacks to be called.
 */
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/loaded.h"
#include "agent/base/memory.h"
#include "agent/comm/comm.h"
#include "agent/core/producer.h"
#include "agent/torch/torch_lib.h"

enum { INPUTS_AT = 208 };

static uint64_t handle; /* (a) handle of the callback; 0: not registered */
/* __cxa_get_globals() of the C++ ABI: returns a struct that begins with the list of the exceptions that the thread is handling. */
static void *const *(*exceptions)(void);

static void destroy(void *observer UNUSED) {}
static void *const vtable[] = {(void *)destroy, (void *)destroy}; /* complete, deleting */

/* Returns the first input, if it is a tensor. inputs_ (a pointer to IValues and their number) follows sequence_nr_ in every build
 * seen; the value is only compared. */
static const void *first_input(const void *record) {
    uint64_t at[2], payload;
    if (memory_read_self((uint64_t)(uintptr_t)record + INPUTS_AT, at, sizeof at) || !at[1] ||
        at[1] > 65536 || memory_read_self(at[0], &payload, sizeof payload))
        return NULL;
    return (const void *)(uintptr_t)payload;
}

/* std::unique_ptr<ObserverContext> (*)(const RecordFunction &) */
static void *start(void **result, const void *record) {
    const char *name;
    *result = NULL;
    /* Of the many USER events only a backend's are of interest. */
    if (!producer_recording() || !(name = torch_lib.name(record)) ||
        (strncmp(name, "gloo:", 5) && strncmp(name, "nccl:", 5)))
        return result;
    if (!strcmp(name, "gloo:sparse_all_reduce")) /* it is the all_reduce of a sparse tensor */
        name = "gloo:all_reduce";
    struct comm_op *op = comm_executing(comm_wrap_current(), name, record, first_input);
    if (op)
        op->observer = vtable;
    *result = op;
    return result;
}

/* gloo's own threads end a failed operation inside the handler of its exception: so if one is being handled, it has failed. */
static void end(const void *record UNUSED, void *context) {
    struct comm_op *op = context;
    if (op && exceptions && op->tid != (uint32_t)syscall(SYS_gettid) && *exceptions())
        op->flags |= COMM_FAILED;
    if (op)
        comm_release(op, sys_now());
}

void comm_observe_begin(void) {
    struct torch_callback cb = {
        .start = start, .end = end, .probability = 1, .scopes = {[TORCH_SCOPE_USER] = 1}};
    void *cxx;
    if (comm_observed() || torch_lib.loaded <= 0)
        return;
    if (!exceptions && !loaded_find("libstdc++.so.6", &cxx)) {
        exceptions = (void *const *(*)(void))dlsym(cxx, "__cxa_get_globals");
        dlerror(); /* clear our error, so that the program does not see it */
    }
    torch_lib_add(&handle, cb);
}

void comm_observe_end(void) {
    torch_lib_remove(&handle);
}

int comm_observed(void) {
    return __atomic_load_n(&handle, __ATOMIC_ACQUIRE) != 0;
}
