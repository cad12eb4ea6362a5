/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_observe.h"

#include <string.h>

#include "agent/torch/torch_back.h"
#include "agent/torch/torch_step.h"

static uint64_t handle; /* of the callback, 0: not registered */
static int with_nodes;

/* sret holds a unique_ptr, which the end callback is given. */
static void *on_begin(void *sret, const void *rf) {
    void *mark = back_begins(rf) ? NULL : step_begins(torch_lib.name(rf));
    memcpy(sret, &mark, sizeof mark);
    return sret;
}

static void on_end(const void *rf, void *mark) {
    (void)rf;
    if (mark)
        step_ends(mark);
}

void observe_start(int nodes) {
    struct torch_callback cb = {
        .start = (void *)on_begin, .end = (void *)on_end, .probability = 1.0};
    uint64_t old = handle;
    if (handle && with_nodes == nodes)
        return;
    cb.scopes[TORCH_SCOPE_USER] = 1;
    cb.scopes[TORCH_SCOPE_BACKWARD] = nodes != 0;
    handle = torch_lib.add_callback(cb);
    with_nodes = nodes;
    if (old) /* after the new one is there, so that no mark is missed: one that both saw counts once (depth) */
        torch_lib.remove_callback(old);
}

void observe_stop(void) {
    if (handle)
        torch_lib.remove_callback(handle);
    handle = 0;
}
