/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - records variables of the program, such as `loss` in the frame of `train`, at the end of each step and when the function returns, named by
 * the settings torch.exprs (PROBE_TORCH_EXPRS) and torch.profiling (exprs=). A variable that is assigned only after the step's end (lr after
 * scheduler.step()) is read once its loop has come round (seen when a batch is asked for or a model called), else at the end of the next step, or at the
 * return, and filed under the step that it was assigned after.
 *
 *     variables_open();                  // a recording begins
 *     variables_close(w);                // it ends: says which expressions never matched
 *
 * Everything else happens in the thread that trains, at the end of a step (steps.h): its Python frames are searched for the function, innermost first, and the
 * local variable is read in place; no dictionary of the frame's locals is created, since that would keep tensors alive. Values are converted by pyvalue.h. An
 * error is noted once for each expression and never raised. Returns are reported by sys.monitoring, for the one code object only. Before 3.12 nothing is as
 * cheap: a profile function is set from the end of a step, or of a model's call within the function (steps_work), to the next of these.
 */
#ifndef PROBING_AGENT_VARIABLES_H
#define PROBING_AGENT_VARIABLES_H

#include "writer/writer.h"

/* Called by the service thread (pymodule.c). */
void variables_open(void);
void variables_close(struct writer *w);
/* In a forked child. Async-signal-safe. */
void variables_after_fork(void);

#endif
