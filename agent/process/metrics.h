/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - cpu, memory, io and network records of this process, from /proc and getrusage.
 *
 *     struct metrics m;
 *     metrics_open(&m);
 *     every second:  metrics_take(&m, writer, agent_us, handler_us);
 *     metrics_close(&m);
 *
 * The files in /proc stay open and are read with pread: some 30 us a time. The target may close
 * our descriptors (daemons close all they find), so each is checked to be still ours before it is used,
 * and opened again when not. The writer's thread only. What cannot be read (/proc/self/io of a
 * process that may not be dumped) is left out.
 */
#ifndef PROBING_AGENT_METRICS_H
#define PROBING_AGENT_METRICS_H

#include <stdint.h>

#include "writer/writer.h"

enum { METRICS_STATUS, METRICS_IO, METRICS_NET, METRICS_NFILES };

struct metrics_file {
    int fd; /* -1: not open */
    int failed;
    uint64_t dev, ino; /* what fd must still be */
};
struct metrics {
    struct metrics_file files[METRICS_NFILES];
};

/* Nothing is open: before the first metrics_open(). */
void metrics_init(struct metrics *m);
void metrics_open(struct metrics *m);
/* One record each of cpu, memory and io, and of network for each interface in use. agent_us,
 * handler_us: the agent's own CPU time, see records.def. 0 or the writer's -errno. */
int metrics_take(struct metrics *m, struct writer *w, uint64_t agent_us, uint64_t handler_us);
/* Closes the files. Async-signal-safe: in a forked child too, where they are the parent's. */
void metrics_close(struct metrics *m);

#endif
