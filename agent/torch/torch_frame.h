/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frame.h - finds what only the Python frames show of PyTorch's calls: a module's call that was not seen (m.__call__(x), or one that began before
 * the recording), the optimizer that steps, a thread that runs no Python any more.
 *
 * Frames are walked, at some 0.3 us each, so these are called only once for each module or thread, or at the first and at compiled steps. The GIL is held unless stated otherwise.
 */
#ifndef PROBING_AGENT_TORCH_FRAME_H
#define PROBING_AGENT_TORCH_FRAME_H

#include <stdint.h>

/* To be called when module calls begin to be seen: those in progress now, on any thread, were not seen. */
void frame_seen(void);
/* Undoes frame_seen(). Async-signal-safe. */
void frame_forget(void);
/* Returns 1 when such an unseen call may be in progress on this thread; to be called until it returns 0. */
int frame_inside(void);
/* 1 when this thread is in a module's call, seen or not. */
int frame_call(void);
/* The module of the outermost call that this thread is in, a pointer for comparison only; NULL: there is none. */
const void *frame_whole(void);
/* The optimizer whose step() this thread is in, a pointer for comparison only; NULL: not found. GIL held or not. */
const void *frame_optimizer(void);
/* Whether this thread is in an optimizer's compiled step(): torch breaks the graph in its decorator, _use_grad(), whose frame is then there. */
int frame_compiled(void);
/* The code that this thread runs, a pointer for comparison only. */
const void *frame_code(void);
/* 1 when that thread (pthread_self()) runs no Python any more. GIL held or not. */
int frame_left(uint64_t thread);

#endif
