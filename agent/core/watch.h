/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - what the service thread does for the parts that watch the program from beside: communication (comm.h), GPUs (gpu.h),
 * triggers (trigger.h). Service thread only.
 */
#ifndef PROBING_AGENT_WATCH_H
#define PROBING_AGENT_WATCH_H

#include "agent/core/state.h"

struct agent_python;

/* Recording begins; the writer is open. */
void watch_open(struct agent *a);
/* CPython has been found. */
void watch_python(struct agent *a, const struct agent_python *py);
/* Each round. */
void watch_round(struct agent *a, uint64_t now);
/* At the interval of the metrics. */
void watch_metrics(struct agent *a);
/* How long the service thread may sleep, at most `wait` ns. */
uint64_t watch_wait(uint64_t wait);
/* The recording ends: nobody else touches the live file any more, the writer is still open. */
void watch_close(struct agent *a);
/* After that (or without it, when nothing could be written), where the process goes on: what was put into it is taken out. */
void watch_leave(void);

#endif
