/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_step.h - finds where one training step ends and the next begins, and records what the USER callbacks of at::RecordFunction report: Optimizer.step
 * and the DataLoader's __next__.
 *
 * - A step ends with the outermost Optimizer.step; steps are numbered from 0 on. Other optimizers that step right after it (several in a row) belong to the
 *   same step. Where a forward or backward pass lies in between, each ends a step of its own (a GAN's two), and so does the same optimizer when it steps
 *   again. Optimizers that step within a backward pass (in hooks, on any of the engine's threads) end one step, with the pass.
 * - Evaluation, whose calls are rows before the step that follows, is a forward pass without gradients after a step and before the next pass with gradients:
 *     of the model that was trained in the last steps, or of a part of it, wrapped or not, if it is in evaluation mode now;
 *     of another model that is called twice in a row, or in turn with a second one (policy and value function in a rollout), with the calls before it. A single
 *     call may be a teacher's or a generator's: it belongs to the step, as do the calls, up to 8, of which the step before had as many (a teacher's of views);
 *     of another model, after an evaluation, if the step before had no such calls;
 *     before a model's first pass with gradients, of a part of it: in evaluation mode, if the part is in training mode by then; in training mode, if other code
 *     called it than now trains the model (which may take its targets from it). What makes a batch, within the DataLoader, is no evaluation.
 *   Where a method calls the parts and not the module (f = m.__call__; m.decode(x)), they are one call, until a part of another model or the first one again.
 * - Gradient accumulation: the forward and backward passes up to the Optimizer.step are one step, less the evaluation after a backward pass (by the same
 *   rules; of a model in evaluation mode, anywhere between them). A step that GradScaler skips calls no Optimizer.step, so its passes count in the next one.
 * - A compiled Optimizer.step after a backward pass is seen, too, where torch's own classes have it. Where none is seen, Optimizer.zero_grad after a
 *   backward pass ends a step, or the batch or evaluation that comes before it: from the eighth on, all eight at once (GradScaler may skip steps).
 * - Without an optimizer each outermost call of the first root module is a step. In a training that steps by hand the first such call after a backward
 *   pass ends a step; if a torch.optim.Optimizer exists, only from the 65th on, because the passes before may be an accumulation. Another module becomes the
 *   root when it has begun eight steps since the root was called (all eight count), or after sixteen calls of others.
 * - When an optimizer, a training by hand, or the program steps after all, its first step is number 0. What the root's calls had counted before that
 *   was evaluation, except from the first pass with gradients on: that belongs to step 0 (a policy's ten forwards and one backward pass).
 * - Once the program calls probing.step(), it alone counts.
 * Only one thread counts: the first with an optimizer; until there is one, the first that does any of this. Once that thread runs no Python any more (join()
 * returns), the next thread that does any of this counts; one that has trained beside it only when it has made more steps.
 */
#ifndef PROBING_AGENT_TORCH_STEP_H
#define PROBING_AGENT_TORCH_STEP_H

#include "agent/torch/torch_thread.h"

struct node;

/* An outermost module call begins. Returns 1 if the calls within it are to be recorded, too (rate). */
int step_root(struct torch_thread *l, struct node *n);
/* An outermost module call ends; not called for a bare module. */
void step_root_done(struct torch_thread *l);
/* A backward pass begins; the outermost one has ended. */
void step_backward(struct torch_thread *l);
void step_backward_done(struct torch_thread *l);

/* Compiled code goes on: an optimizer's step may lie before. GIL held. */
void step_compiled(struct torch_thread *l);

/* rate in millionths: the share of steps whose modules are recorded. */
void step_rate(uint32_t millionths);
/* A recording begins, or this is a forked child: probing.step() counts from now on, without torch too. */
void step_reset(int count_anew);

/* What has a name begins (Optimizer.step, the DataLoader's __next__, ...): returns what step_mark_ends() is to be given, NULL where the name is none of these.
 * The start and end of a RecordFunction (torch.c): any thread, with or without the GIL. */
void *step_mark_begins(const char *name);
void step_mark_ends(const void *rf, void *mark);

#endif
