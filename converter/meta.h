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

#define META_RECORDING 160 /* bytes of the text that identifies a recording */
#define META_RESTARTS  2

/* From `since` on (monotonic ns) a tick of the sampler stands for `ns`; 0: sampler off. */
struct meta_period {
    uint64_t since, ns;
};

struct meta {
    /* From the last process record. Texts are UTF-8, "" when there is none. */
    int has_process;
    uint64_t process_ts; /* when the first process record was written; 0: there is none */
    uint64_t mark;       /* reader_mark(), if there is no process record */
    uint64_t process_start, pid, ppid, uid, eval_start, eval_end, cold_start, cold_end, python;
    int64_t rank, local_rank, world_size;
    uint64_t restarts[META_RESTARTS]; /* as torch's launcher says, and Slurm */
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
/* Returns the number of earlier starts of the process that its environment tells of, as schema/90_after_load.sql counts them. */
int64_t meta_told(const struct meta *m);
/* Writes the text that identifies the recording, whatever its file is called. */
void meta_recording(const struct meta *m, char buf[META_RECORDING]);
/* Makes the text of meta_recording() from the first process record. process_ts is the record's own time; 0: the trace has no process record, and `mark`, from reader_mark(), identifies it. */
void meta_recording_of(char buf[META_RECORDING], const char *boot_id, uint64_t pid, uint64_t start,
                       uint64_t process_ts, uint64_t mark);
/* Returns the key of the machine's boot: the boot id, or, for a trace without one, the text that identifies the recording (it begins with a blank then), in buf. */
const char *meta_boot(const struct meta *m, char buf[META_RECORDING]);
/* Returns the sampling period in ns at the time ts (ns of CLOCK_MONOTONIC), or 0 if it is not known. */
uint64_t meta_period_at(const struct meta *m, uint64_t ts);

#endif
