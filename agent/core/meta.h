/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - what a trace says about its process: process, clock and note records.
 *
 * All from the writer's thread only; each returns 0 or the writer's -errno, and allocates nothing.
 */
#ifndef PROBING_AGENT_META_H
#define PROBING_AGENT_META_H

#include "agent/core/config.h"
#include "writer/writer.h"

struct agent_python;

/* One process record. `py` may be not found yet (version 0). */
int meta_process(struct writer *w, const struct agent_ranks *ranks, const struct agent_python *py,
                 const char *how);
/* One clock anchor: MONOTONIC, REALTIME, BOOTTIME, MONOTONIC; the narrowest of a few tries. */
int meta_clock(struct writer *w);
/* level: 0 info, 1 warning, 2 error. */
int meta_note(struct writer *w, unsigned level, const char *part, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The first `n` bytes of the command line with spaces for NULs, for live->command. */
void meta_command(char *buf, size_t n);

#endif
