/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_step.h - where one training step ends and the next begins, and what the USER callbacks of at::RecordFunction tell:
 * Optimizer.step and the DataLoader's __next__.
 *
 * - A step ends with the outermost Optimizer.step. Others that follow before the next forward pass belong to it
 *   (several optimizers stepped in a row); with a forward pass in between each ends a step of its own (a GAN's two).
 * - Gradient accumulation: the forward and backward passes up to the Optimizer.step are one step. A step that GradScaler skips
 *   calls no Optimizer.step, so its passes count in the next one.
 * - Without an optimizer each outermost call of the first root module is a step: at once in inference (no backward
 *   pass yet), after 64 calls in a training that steps by hand.
 * - Once the program calls probing.step(), it alone counts.
 * One thread counts: the first that does any of this.
 */
#ifndef PROBING_AGENT_TORCH_STEP_H
#define PROBING_AGENT_TORCH_STEP_H

#include "agent/torch/torch_lane.h"

/* An outermost module call begins, of the node with this serial (0: a module without any in it, which is no model).
 * 1: what lies within it is to be recorded, too (rate). */
int step_root(struct lane *l, uint32_t serial);
void step_root_done(struct lane *l);
/* A backward pass begins. */
void step_backward(void);

/* rate in millionths: the share of steps whose modules are recorded. */
void step_rate(uint32_t millionths);
/* probing.step() counts, or not any more. Service thread. */
void step_start(void);
void step_stop(void);
/* What the callback (torch_observe.h) is told begins, by name: what to give step_ends, NULL when it is none of ours. Any
 * thread, GIL or not. */
void *step_begins(const char *name);
void step_ends(void *mark);
/* A recording begins, or this is a forked child. */
void step_reset(int count_anew);

/* torch_frames.c: 1 when a module's call is in progress on this thread. GIL held. */
int torch_frames_inside(void);

#endif
