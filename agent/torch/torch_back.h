/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_back.h - backward, module by module, without a hook on any tensor or module.
 *
 * autograd numbers the nodes of its graph as the forward pass makes them, thread by thread. What was numbered between two changes of the
 * innermost module call belongs to the call that was innermost (back_entered, at each change). In the backward pass each node is seen as it
 * begins, and its number says whose it is: at first by a callback of at::RecordFunction; once both have said the same of enough nodes, in the
 * function by which the engine calls nodes, which costs less (torch_back.c). Nodes in a row of one call are one interval, within those of the
 * calls around it (back_node). A gradient's accumulation has no number: it goes with the node before it.
 *
 * Threads count each for themselves, so a node also says which thread made it; where both lie in a RecordFunction is found at the start
 * (torch_record_find). The struct of a thread that has ended still answers for what that thread made. The callback runs with or without the
 * GIL, on whatever thread the engine uses.
 */
#ifndef PROBING_AGENT_TORCH_BACK_H
#define PROBING_AGENT_TORCH_BACK_H

#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_thread.h"

extern int back_on; /* (a) modules' backward is recorded */
/* (a) The thread whose nodes, and those on the engine's own threads, are not seen: its pass is only traced. NULL: none. */
extern const void *back_unseen;

/* What a pass within another one puts aside. */
struct back_pass {
    uint32_t call, depth;
    const struct torch_thread *of;
};

/* 0, with something in why where it is less than it could be; -errno and why: it stays off. Service thread, once torch_lib is
 * loaded; step_observe() then, with nodes until back_proven(). */
int back_start(char *why, size_t n);
void back_stop(void);
/* Whether nodes are seen without the callback. */
int back_proven(void);
/* Now and then, while it is on. 1: for the first time in this recording they are. Service thread. */
int back_round(void);
/* Something begins, as the callback has it: 1 when it was a node of autograd's with a number. Any thread, GIL or not. */
int back_begins(const void *rf);

/* A whole pass begins and ends on this thread; 1: the outermost. */
uint32_t back_begin(struct torch_thread *l, struct back_pass *save);
int back_end(struct torch_thread *l, const struct back_pass *save, uint32_t depth, unsigned flags);

/* Nodes from the thread's last number up to `next` (not included) are the innermost call's. Its own thread. */
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
