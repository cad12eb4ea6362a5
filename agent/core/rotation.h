/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.h - splits the trace into segments, and limits the agent's memory: settings segment_size, retention_days, max_memory.
 *
 *     rotation_open(&r, host, rank, trace, main);
 *     every round:  if (rotation_round(&r, writer)) ... write the records that describe the process again
 *
 * A segment that is full is closed and renamed: to FILE.d/HOST[-rRANK]-PID.N.zst, next to the traces of the run's other processes, or
 * to NAME.N.zst for a trace that lies in a directory already. N counts from 1. The current segment keeps the trace's name. So a copy
 * of FILE and FILE.d has all segments. With retention_days, a segment also ends after an eighth of that time, and segments of this
 * recording (and of no other) that ended longer ago than that time are deleted.
 *
 * Service thread only. Nothing here fails: if a segment cannot be begun, rotation is turned off, and a note says so.
 */
#ifndef PROBING_AGENT_ROTATION_H
#define PROBING_AGENT_ROTATION_H

#include "agent/core/config.h"

struct writer;

struct rotation {
    char stem[CONFIG_PATH]; /* path of the segments, without .N.zst */
    char dir[CONFIG_PATH];  /* directory to create for the segments; "": it exists */
    uint32_t first, last;   /* numbers of the segments that may still exist */
    int off;                /* rotation failed and is turned off */
    uint64_t next_check;    /* when to check the age of old segments next, ns */
};

/* `trace`: path of the trace; `main`: whether it is FILE itself. */
void rotation_open(struct rotation *r, const char *host, int rank, const char *trace, int main);
/* Returns 1 when a new segment has begun. Holds the fork lock while it exchanges files. */
int rotation_round(struct rotation *r, struct writer *w);

#endif
