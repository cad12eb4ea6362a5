/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frame.h - what of PyTorch's calls only the Python frames show: a module's call that is not seen (m.__call__(x), or one that began before the
 * recording), the optimizer that steps, a thread that Python is through with.
 *
 * Frames are walked, at some 0.3 us each: asked once for each module, thread or first steps. The GIL is held, but where it says otherwise.
 */
#ifndef PROBING_AGENT_TORCH_FRAME_H
#define PROBING_AGENT_TORCH_FRAME_H

#include <stdint.h>

/* Modules' calls are seen from now on: those that are in progress, on any thread, were not. */
void frame_seen(void);
/* As before frame_seen(). Async-signal-safe. */
void frame_forget(void);
/* 1 when one of these may be in progress on this thread: asked until none is. */
int frame_inside(void);
/* 1 when this thread is in a module's call, seen or not. */
int frame_call(void);
/* The module of the outermost call that this thread is in, to be compared only; NULL: there is none. */
const void *frame_whole(void);
/* The optimizer whose step() this thread is in, to be compared only; NULL: not found. GIL held or not. */
const void *frame_optimizer(void);
/* 1 when that thread (pthread_self()) runs no Python any more. GIL held or not. */
int frame_left(uint64_t thread);

#endif
