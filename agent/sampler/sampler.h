/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - takes the stacks of all Python threads at a fixed rate (agent/README.md, life of a sample). It is a part
 * (agent/core/part.h) with a thread of its own, which waits until Python is initialised.
 *
 * Writes thread, frame, stack and sample records into rings of the live file: blocked threads' samples into its own ring, a running thread's from the signal
 * handler into that thread's ring. Loss is counted in live->lost[]. In the target it installs one handler, for SIGURG (else the highest free real-time signal:
 * handler.c says why), with SA_RESTART | SA_SIGINFO; it stays installed if a signal of ours may still be pending. Never takes a lock that the target may hold.
 */
#ifndef PROBING_AGENT_SAMPLER_H
#define PROBING_AGENT_SAMPLER_H

#include <stdint.h>

/*
 * Takes the stacks of all threads except `except` (0: none) outside of the ticks: samples with ts `tick` (ns, a multiple of 1 us) and
 * count 0. Waits until they are in the rings: returns 0; -ETIMEDOUT after timeout_ms; -ESRCH: nothing is being sampled. Service thread.
 */
int sampler_burst(uint64_t tick, uint32_t except, int timeout_ms);

#endif
