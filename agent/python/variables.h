/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - the program's own variables: the value of `loss` in the frame of `train` at the end of each step, and when
 * `train` returns. What a function assigns only after the step's end (lr after scheduler.step()) is read at the end of the next
 * one, or at its return, and filed under the step that it was assigned after. Which: the settings torch.exprs (PROBE_TORCH_EXPRS) and exprs= in torch.profiling.
 *
 *     variables_open();                  // a recording begins
 *     variables_close(w);                // it ends: says which expressions never matched
 *
 * All else happens in the thread that trains, at the end of a step (steps.h): its Python frames are
 * searched for the function, innermost first, and the local variable is read where it lies; no dictionary of the frame's locals
 * is made, which would keep tensors alive. Values are described by pyvalue.h. An error is noted once for each expression and never
 * raised. Returns are seen by sys.monitoring, local to the one code object. Before 3.12 there is nothing as cheap: a profile function
 * is there from the end of a step, or of a model's call within the function (steps_work), to the next of these.
 */
#ifndef PROBING_AGENT_VARIABLES_H
#define PROBING_AGENT_VARIABLES_H

#include "writer/writer.h"

/* Service thread (pymodule.c). */
void variables_open(void);
void variables_close(struct writer *w);
/* In a forked child. Async-signal-safe. */
void variables_after_fork(void);

#endif
