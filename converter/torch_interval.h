/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_interval.h - what an interval of table torch_call is (a module's call, a backward pass, an optimizer's step, a wait for data), and which
 * part of a step its time counts as.
 *
 *     struct torch_interval v;
 *     torch_interval_begin(&v, o, e.kind, &e);     // what begins with event e on the thread; row, step and depth are 0
 *     v.part = torch_interval_part(o, v.stage);    // in what is open on the thread; enum torch_part, -1: that of the interval around it
 *     torch_interval_is_engines(o, &v)                             // 1: an optimizer in a hook, on a thread of the autograd engine
 *
 * A part is an outermost forward call, a pass, an optimizer or a wait. Within a backward pass everything except an optimizer is backward. An
 * optimizer that steps in a hook of a pass may run on a thread of the autograd engine, while another thread waits for the pass.
 */
#ifndef PROBING_CONVERTER_TORCH_INTERVAL_H
#define PROBING_CONVERTER_TORCH_INTERVAL_H

#include "torch_state.h"

enum {
    TORCH_CALL_FAILED = 1,
    TORCH_CALL_AGAIN = 2,
    TORCH_CALL_EVALUATION = 4,
    TORCH_CALL_FOLLOWS = 8 /* began in an earlier file; not stored */
};

/* v may be the next place of tc->open: there are millions of intervals, and copying one takes as long as all else. kind: that of the event that the interval began with, which e itself may only repeat (TORCH_OPEN). */
void torch_interval_begin(struct torch_interval *v, const struct torch_open *tc, unsigned kind,
                          const struct torch_item *e);
int torch_interval_part(const struct torch_open *tc, enum torch_stage stage);
int torch_interval_is_engines(const struct torch_open *tc, const struct torch_interval *v);
/* Adds an interval that ended at `end` (0: that is not known) to the sums of its module, and its time to that inside the one around it. Returns 0 or -ENOMEM. */
int torch_interval_sum(struct torch_state *t, struct torch_open *tc, const struct torch_interval *v,
                       uint64_t end);

#endif
