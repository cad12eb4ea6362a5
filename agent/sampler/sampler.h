/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - takes the stacks of all Python threads at a fixed rate (agent/README.md, life of a sample).
 *
 *     struct sampler *s;
 *     sampler_start(&s, live);        // its own thread; waits by itself until Python is initialised
 *     ...  live->period_ns and live->native may be changed at any time (0 = pause)
 *     sampler_stop(s);
 *
 * Writes thread, frame, stack and sample records into rings of the live file: blocked threads' samples into
 * its own ring, a running thread's from the signal handler into that thread's ring. Loss is counted in
 * live->lost[]. In the target it installs one handler, for SIGURG (else the highest free real-time signal: handler.c says why), with SA_RESTART |
 * SA_SIGINFO; a signal that is not ours goes on to the handler that was there before. Its thread has all
 * signals masked. Never takes a lock that the target may hold.
 */
#ifndef PROBING_AGENT_SAMPLER_H
#define PROBING_AGENT_SAMPLER_H

#include "agent/core/part.h"

struct sampler;

extern const struct agent_part sampler_part;
/* sampler_burst() of the recording in progress: -ESRCH when there is none. Service thread. */
int sampler_part_burst(uint64_t tick, uint32_t except, int timeout_ms);

/* 0 or -errno. Not async-signal-safe. One sampler a process at a time. */
int sampler_start(struct sampler **out, struct live *live);
/* Ends the thread (waits for it), flushes pending idle samples into the ring, disarms the handler (the sigaction stays, so
 * that a late signal cannot kill the target; it does nothing then). The live file must still be mapped. NULL is allowed.
 * 0; -EBUSY: the thread, or a handler, goes on for a while (it had no CPU for seconds): the live file's memory must stay. */
int sampler_stop(struct sampler *s);
/*
 * Takes the stacks of all threads but `except` (0: nobody) outside of the ticks: samples with ts `tick` (ns, whole us) and
 * count 0. Waits until they are in the rings: 0; -ETIMEDOUT after timeout_ms; -ESRCH no sampler. Async-signal-safe; one caller
 * at a time.
 */
int sampler_burst(struct sampler *s, uint64_t tick, uint32_t except, int timeout_ms);
/* In a forked child, where the thread does not exist: disarms the handler, leaks the rest. `s` is not looked at and
 * may be NULL. Async-signal-safe. */
void sampler_abandon(struct sampler *s);
/* CPU time of the sampler thread, ns, as it was 10 ms or one period ago at most. */
uint64_t sampler_cpu_ns(const struct sampler *s);

#endif
