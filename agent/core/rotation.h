/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.h - the trace in segments, and the bound of the agent's memory: settings segment_size, retention_days, max_memory.
 *
 *     rotation_open(&r, host, rank, trace, main);
 *     every round:  if (rotation_round(&r, writer)) ... write again what describes the process
 *
 * A segment that is full is closed and renamed, FILE.d/HOST[-rRANK]-PID.N.zst beside the traces of the run's other processes, or
 * NAME.N.zst for one that lies in a directory already; N counts from 1. The present one keeps the trace's name. So whoever
 * takes FILE and FILE.d has all of them. With retention_days a segment also ends after an eighth of that time, and
 * segments of this recording, of no other, are deleted when they ended longer ago.
 *
 * Service thread only. Nothing here fails: what cannot be done is turned off and noted.
 */
#ifndef PROBING_AGENT_ROTATION_H
#define PROBING_AGENT_ROTATION_H

#include "agent/core/config.h"

struct writer;

struct rotation {
    char stem[CONFIG_PATH]; /* of the segments' names, without .N.zst */
    char dir[CONFIG_PATH];  /* of the segments; "": it is there already */
    uint32_t first, last;   /* segments that may still be there */
    int off;                /* it failed */
    uint64_t next_check;    /* at the age of old segments */
};

/* `trace`: where the trace is; `main`: it is FILE itself. */
void rotation_open(struct rotation *r, const char *host, int rank, const char *trace, int main);
/* 1 when a new segment has begun. The fork lock is held while files are exchanged. */
int rotation_round(struct rotation *r, struct writer *w);

#endif
