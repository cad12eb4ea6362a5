/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_count.h - a trace's totals in one pass over its blocks, for summary lines: no dictionaries,
 * no symbols, no SQL.
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
    uint64_t lost[TRACE_NLOST + 1]; /* by reason; the last: ticks in the lives of `children` */
    uint64_t children;              /* forked ones that left no trace */
    uint64_t first_ts, last_ts;     /* ns of CLOCK_MONOTONIC; 0 when it holds no times */
    uint64_t process_start;         /* process.start_ts: when the process itself began */
    uint32_t pid;
    int32_t rank;
    int closed;              /* it has an `end` record */
    int damaged;             /* reading stopped before the end of the file */
    int headers_only;        /* larger than `budget`: samples, session and lost were not read */
    uint64_t variables;      /* values of variables */
    char variable_note[500]; /* which had no value, else the first warning about one, "" if none */
    char unsampled[160];     /* why no stacks are sampled in this process, "" where they are */
    char session[64];        /* config probing.session, "" if none */
};

/*
 * Reads the whole file. A damaged or torn tail ends the reading (damaged = 1, still 0). budget: when
 * the file is larger than so many bytes, only the hint frames and the first blocks are read (0: no bound).
 * 0; -errno when it cannot be read; -EBADMSG when it is no trace.
 */
int trace_count(struct trace_count *out, const char *path, uint64_t budget);

#endif
