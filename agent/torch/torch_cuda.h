/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_cuda.h - the GPU's side of what torch_thread.h records: how long the GPU was at a module's forward call, its backward
 * or a step (cuda_events.h), and torch's GPU memory after a call and a step (cuda_api.h).
 *
 *     if (__builtin_expect(cuda_on, 0)) pair = cuda_begin(l, STAGE_FORWARD, call, name);
 *     ...
 *     cuda_end(l, pair);
 *
 * cuda_on stays 0 in a process that has no CUDA context. It is set when libcuda and libc10_cuda are loaded (service thread) and then a
 * thread that begins an outermost module call has a context and torch.cuda is initialised: nothing here initialises CUDA.
 *
 * Recording an event costs the program a microsecond or two, reading the memory ten or twenty, so each may use 0.25 % of a thread's time
 * (limit.h): which calls have a time then changes from step to step. Steps come first, with half of that: each has its time, and its
 * memory, where steps take more than some 10 ms. The settings cuda= and memory= lift that limit (all) or leave it out (off).
 *
 * Who reads the events: each thread at the ends of its module calls; what it has left for 50 ms the main thread reads between two
 * of its instructions (gil.h), if it has that context. What the GPU has not done when the program ends has no time.
 *
 * A child forked from a process that uses CUDA cannot use it, and nothing is tried there.
 */
#ifndef PROBING_AGENT_TORCH_CUDA_H
#define PROBING_AGENT_TORCH_CUDA_H

#include "agent/core/steps.h"
#include "agent/gpu/cuda_api.h"
#include "agent/gpu/cuda_events.h"
#include "agent/torch/torch_thread.h"
#include "traces/torch_setting.h"

enum { CUDA_TIMES = 1, CUDA_MEMORY = 2 };
extern uint32_t cuda_on;    /* (a) which of them are recorded */
extern uint32_t cuda_waits; /* (a) they would be, were there a context: cuda_look() */

/* An outermost module call begins: is there a context now? GIL held. */
void cuda_look(uint64_t now);

/* ---- the threads that run modules, where cuda_on says so ---- */

/* An interval has just begun on this thread, `name` that of its module. 0: it gets no time. */
uint32_t cuda_begin(struct torch_thread *l, enum events_stage stage, uint32_t call, uint32_t name);
/* It ends, before torch_thread_exit(). pair 0 is allowed. */
void cuda_end(struct torch_thread *l, uint32_t pair);
/* The memory at the end of a forward call that began at ts. GIL held, no exception set. */
void cuda_memory_call(struct torch_thread *l, uint32_t call, uint32_t name, uint64_t ts);
/* An interval of a backward pass has begun, the innermost of the thread; it ends: pass != 0: when that one did, on another thread. */
void cuda_back_begin(struct torch_thread *l);
void cuda_back_end(struct torch_thread *l, uint32_t depth, uint32_t pass);
/* A whole pass has ended on this thread. */
void cuda_pass(struct torch_thread *l, uint32_t pass);
/* A step has ended; begin: when it began. */
void cuda_step(struct torch_thread *l, uint64_t number, uint64_t begin, uint64_t end);
/* Memory at a step's end: takes the GIL where it is not held. 0, or -ENODATA: no GPU, or not wanted. */
int cuda_memory_step(const struct step *s, struct cuda_memory *m);

/* ---- service thread ---- */

void cuda_open(void);
void cuda_setting(enum torch_amount times, enum torch_amount memory);
/* Once nn.Module carries our slots. Returns ns until the next round is wanted, 0: no wish. */
uint64_t cuda_round(struct writer *w, uint64_t now);
/* Nothing is recorded any more; w: for the note, or NULL. */
void cuda_close(struct writer *w);
/* In a forked child; async-signal-safe. */
void cuda_after_fork(void);

#endif
