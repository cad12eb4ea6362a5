/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - writes what a trace says about its process: process, clock and note records.
 *
 * To be called on the writer's thread only. The functions return 0 or the writer's -errno, and allocate nothing.
 */
#ifndef PROBING_AGENT_META_H
#define PROBING_AGENT_META_H

#include "agent/core/config.h"
#include "writer/writer.h"

struct agent_python;

/* Writes a process record. In `py`, Python may be not found yet (version 0). */
int meta_process(struct writer *w, const struct agent_ranks *ranks, const struct agent_python *py,
                 const char *how);
/* Writes a clock record: reads MONOTONIC, REALTIME, BOOTTIME and MONOTONIC again, and takes the quickest of three tries. */
int meta_clock(struct writer *w);
/* Writes a note record. level: 0 info, 1 warning, 2 error. */
int meta_note(struct writer *w, unsigned level, const char *part, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Copies the first `n` bytes of the command line, with control characters replaced by spaces, for live->command. */
void meta_command(char *buf, size_t n);

#endif
