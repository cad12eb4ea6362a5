/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.h - counts what becomes of forked children before their own recording begins (service.c waits 20 ms, because most exec or exit at once).
 * A process shares one page with the children that it forks; a child without a trace is counted in its parent's trace: record `children`.
 *
 *     in the child, in fork():   children_born()
 *     while it waits:            children_seen()
 *     at the end of the wait:    children_settle(CHILDREN_RECORDED)     // or another value
 *     in the parent:             children_open(), then children_round(w, now) every now and then
 *
 * A child that is not seen any more was killed, or did an exec that the agent is not told of (PROBING=1). All functions except children_open()
 * and children_round() are async-signal-safe.
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
/* Writes a `children` record when counts have changed. `now` is UINT64_MAX in the last call of a recording, which unmaps the page. */
void children_round(struct writer *w, uint64_t now);
void children_born(void);
void children_seen(void);
void children_settle(enum children_end how);
/* Returns the time at which this process was forked, ns of CLOCK_MONOTONIC, at the first call; later, and in a process that was not forked, 0. */
uint64_t children_birth(void);

#endif
