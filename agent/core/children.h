/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.h - what becomes of forked children before their own recording begins (service.c: it waits 20 ms, because most exec or exit at once).
 * One page is shared by a process and the children that it forks; who leaves no trace is counted in its parent's: record `children`.
 *
 *     in the child, in fork():   children_born()
 *     while it waits:            children_seen()
 *     at the end of that:        children_settle(CHILDREN_RECORDED)     or how else it ended
 *     in the parent:             children_open(), then children_round(w, now) every now and then
 *
 * A child that is not seen any more was killed, or has exec'ed where we are not called (PROBING=1). All but open and round are async-signal-safe.
 */
#ifndef PROBING_AGENT_CHILDREN_H
#define PROBING_AGENT_CHILDREN_H

#include "writer/writer.h"

enum children_end {
    CHILDREN_RECORDED,
    CHILDREN_ENDED,  /* exit(), _exit() or its last thread's end */
    CHILDREN_FAILED, /* its recording could not begin */
    CHILDREN_EXEC,   /* it is another program from now on */
};

void children_open(void);
/* now UINT64_MAX: the last one of a recording; after it the page goes. */
void children_round(struct writer *w, uint64_t now);
void children_born(void);
void children_seen(void);
void children_settle(enum children_end how);
/* When this process was forked, ns of CLOCK_MONOTONIC, once; then, and where it was not, 0. */
uint64_t children_birth(void);

#endif
