/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - what a trace says about itself: process, clocks, settings, threads, and its end.
 *
 *     struct meta m;
 *     meta_load(&m, reader, epochs);       // 0 or -ENOMEM; damaged blocks are left out
 *     meta_free(&m);
 *
 * It reads only the blocks that have such records. One thread at a time.
 */
#ifndef PROBING_CONVERTER_META_H
#define PROBING_CONVERTER_META_H

#include "clock.h"
#include "code_names.h"
#include "dict.h"
#include "threads.h"

/* From `since` (monotonic ns) on, a tick of the sampler stands for `ns`; 0: the sampler was off. */
struct meta_period {
    uint64_t since, ns;
};

struct meta {
    /* From the last process record. Texts are UTF-8, "" when there is none. */
    int has_process;
    uint64_t process_ts; /* when the first process record was written */
    uint64_t process_start, pid, ppid, uid, eval_start, eval_end, cold_start, cold_end, python;
    int64_t rank, local_rank, world_size;
    char *host, *boot_id, *exe, *command, *cwd, *agent, *how, *role, *master, *run, *job;

    char *end_reason;                      /* NULL: no end record */
    uint64_t end_ts, end_last, end_signal; /* of the end record */
    struct clock_map clock; /* from the trace's own anchors, until it is aligned (align.h) */
    size_t clock_anchors;   /* number of anchors in the trace */
    struct threads threads;
    struct meta_period *periods; /* ascending */
    size_t nperiods;
    struct code_names code_names;
};

int meta_load(struct meta *m, struct reader *r, struct epochs *es);
void meta_free(struct meta *m);
/* Writes to buf what identifies the recording, whatever its file is called, as align_recording() does. */
void meta_recording(const struct meta *m, char buf[160]);
/* Returns the sampling period in ns at a time (ns of CLOCK_MONOTONIC); 0: not known. */
uint64_t meta_period_at(const struct meta *m, uint64_t ts);

#endif
