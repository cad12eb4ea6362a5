/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_cuda.h - the GPU's side of what torch_thread.h records: how long the GPU worked on a module's forward call, its backward
 * or a step (cuda_events.h), and torch's GPU memory after a call and a step (cuda_api.h).
 *
 *     if (__builtin_expect(cuda_on, 0)) pair = cuda_begin(l, STAGE_FORWARD, call, name);
 *     ...
 *     cuda_end(l, pair);
 *
 * cuda_on stays 0 in a process that has no CUDA context. It is set once libcuda and libc10_cuda are loaded (service thread) and a thread
 * that then begins an outermost module call has a context, with torch.cuda initialised: nothing here initialises CUDA.
 *
 * Recording an event costs the program a microsecond or two, reading the memory ten or twenty, so each may use 0.25 % of a thread's time
 * (limit.h): which calls have a time then changes from step to step. Steps come first, with half of that: every step has its time, and its
 * memory, if steps take more than some 10 ms. The settings cuda= and memory= lift that limit (all) or leave it out (off).
 *
 * Each thread reads its events at the ends of its module calls; those it has not read for 50 ms the main thread reads between two bytecodes
 * (gil.h), if it has that context. Work that the GPU has not finished when the program ends has no time.
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
extern uint32_t cuda_waits; /* (a) which of them will be, once there is a context: cuda_look() */

/* An outermost module call begins: checks whether there is a context now. GIL held. */
void cuda_look(uint64_t now);

/* ---- the threads that run modules, where cuda_on says so ---- */

/* An interval has just begun on this thread; `name` is its module's. Returns a pair of events for cuda_end(), 0: it gets no time. */
uint32_t cuda_begin(struct torch_thread *l, enum events_stage stage, uint32_t call, uint32_t name);
/* The interval ends; called before torch_thread_exit(). pair 0 is allowed. */
void cuda_end(struct torch_thread *l, uint32_t pair);
/* Records the memory at the end of a forward call that began at ts. GIL held, no exception set. */
void cuda_memory_call(struct torch_thread *l, uint32_t call, uint32_t name, uint64_t ts);
/* An interval of a backward pass, the thread's innermost, has begun; it ends. pass != 0: it ended when that pass did, on another thread. */
void cuda_back_begin(struct torch_thread *l);
void cuda_back_end(struct torch_thread *l, uint32_t depth, uint32_t pass);
/* A whole pass has ended on this thread. */
void cuda_pass(struct torch_thread *l, uint32_t pass);
/* A step has ended; begin: when it began. */
void cuda_step(struct torch_thread *l, uint64_t number, uint64_t begin, uint64_t end);
/* Reads the memory at a step's end; takes the GIL unless it is held. Returns 0, or -ENODATA: no GPU, or not wanted. */
int cuda_memory_step(const struct step *s, struct cuda_memory *m);

/* ---- service thread ---- */

void cuda_open(void);
void cuda_setting(enum torch_amount times, enum torch_amount memory);
/* To be called in each round once nn.Module carries our slots. Returns ns until the next round is wanted, 0: no wish. */
uint64_t cuda_round(struct writer *w, uint64_t now);
/* Ends the recording; the note is written to w, which may be NULL. */
void cuda_close(struct writer *w);
/* In a forked child; async-signal-safe. */
void cuda_after_fork(void);

#endif
