/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_count.h - computes a trace's totals in one pass over its blocks, for summary lines: without dictionaries, symbols or SQL.
 *
 *     struct trace_count c;
 *     if (trace_count(&c, "trace.zst", 0) == 0)
 *         printf("%" PRIu64 " samples\n", c.samples);
 */
#ifndef PROBING_TOOLS_TRACE_COUNT_H
#define PROBING_TOOLS_TRACE_COUNT_H

#include "../traces/records.h"

struct trace_count {
    uint64_t bytes;                 /* length of the file */
    uint64_t records;               /* of all types */
    uint64_t samples;               /* ticks: the sum of sample.count */
    uint64_t lost[TRACE_NLOST + 1]; /* by reason; the last one: ticks that `children` lived for */
    uint64_t children;              /* number of forked children that left no trace */
    uint64_t first_ts, last_ts;     /* ns of CLOCK_MONOTONIC; 0 when it holds no times */
    uint64_t process_start;         /* process.start_ts: when the process itself began */
    uint32_t pid;
    int32_t rank;
    int closed;  /* it has an `end` record */
    int damaged; /* 1: reading stopped before the end of the file */
    /* 1: the file is larger than `budget`; samples, session and lost were not read */
    int headers_only;
    uint64_t variables; /* number of values of variables */
    /* the variables without a value, else the first warning about one, "" if none */
    char variable_note[500];
    char unsampled[160]; /* why no stacks are sampled in this process, "" if they are */
    char session[64];    /* config probing.session, "" if none */
};

/*
 * Reads the whole file. A damaged or torn tail ends the reading (it sets `damaged` and returns 0). budget: when the file is larger than
 * this many bytes, only the hint frames and the blocks with the process and its settings are read (0: no limit). Returns 0; -errno when the file cannot be read;
 * -EBADMSG when it is no trace.
 */
int trace_count(struct trace_count *out, const char *path, uint64_t budget);

#endif
