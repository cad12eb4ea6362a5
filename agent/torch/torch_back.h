/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_back.h - records the backward pass module by module, without a hook on any tensor or module.
 *
 * autograd numbers the nodes of its graph as the forward pass creates them, separately in each thread. Nodes that were numbered between two changes of the
 * innermost module call belong to the call that was innermost (back_entered, at each change). In the backward pass each node is seen when it begins, and
 * its number tells its call. At first a callback of at::RecordFunction sees the nodes; once our hook of the function by which the engine calls nodes has
 * agreed with it on enough nodes, that hook alone does, which costs less (torch_back.c). Consecutive nodes of one call form one interval, inside those of
 * the calls around it (back_node). A gradient's accumulation has no number: it counts with the node before it.
 *
 * Each thread counts its own nodes, so a node also says which thread made it; the places of both in a RecordFunction are found at the start
 * (torch_record_find). The struct of a thread that has ended still answers for the nodes that thread made. The callback runs with or without
 * the GIL, on whatever thread the engine uses.
 */
#ifndef PROBING_AGENT_TORCH_BACK_H
#define PROBING_AGENT_TORCH_BACK_H

#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_thread.h"

extern int back_on; /* (a) modules' backward is recorded */

/* State of a backward pass that is saved while another pass runs within it. */
struct back_pass {
    uint32_t call, depth;
    const struct torch_thread *of;
};

/* Turns it on. Returns 0, or -ENOTSUP with a reason in `why`: it stays off. Service thread, once torch_lib is loaded; register the callback
 * afterwards, with nodes until back_proven(). */
int back_start(char *why, size_t n);
void back_stop(void);
/* Whether nodes are seen without the callback. */
int back_proven(void);
/* To be called now and then while it is on. Returns 1 when, for the first time in this recording, nodes are seen without the callback. Service thread. */
int back_round(void);
/* The callback reports that something begins. Returns 1 if it is a node of autograd's with a number. Any thread, GIL or not. */
int back_begins(const void *rf);

/* A whole backward pass begins, and ends, on this thread. back_end() returns 1 if it was the outermost one. */
uint32_t back_begin(struct torch_thread *l, struct back_pass *save);
int back_end(struct torch_thread *l, const struct back_pass *save, uint32_t depth, unsigned flags);

/* Assigns the nodes from the thread's last number up to `next` (exclusive) to its innermost call. Called by the thread itself. */
void back_own(struct torch_thread *l, uint64_t next);

/* The innermost call of the thread is about to change. */
static inline void back_entered(struct torch_thread *l) {
    if (__atomic_load_n(&back_on, __ATOMIC_RELAXED)) {
        uint64_t next = torch_lib.peek();
        if (next != l->sequence || !l->owners)
            back_own(l, next);
    }
}

/* A call has begun. */
static inline void back_call(struct torch_thread *l, uint32_t call, uint32_t parent, uint32_t id) {
    if (l->calls)
        l->calls[call & (TORCH_CALLS - 1)] = (struct torch_thread_call){call, parent, id};
}

#endif
