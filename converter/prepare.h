/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h - prepares one trace for a database, up to the work of SQLite: its process, its modules and symbols, its clock, and its samples
 * with their stacks.
 *
 *     struct prepared p;
 *     err = prepare_read(&p, &plan, in, part, reader, nth); // any thread, many traces at a time
 *     err = prepare_begin(&p, &plan, id);                   // from here to the end of the samples: one trace at a time, in the order of ids,
 *     while ((err = prepare_samples(&p, &batch)) > 0) ...;  // because functions, frames and stacks get their numbers here
 *     load_rows(&now, &p.load);                             // load.h: the thread of the database
 *     prepare_free(&p);
 *
 * Errors are -ENOMEM. The reader remains the caller's.
 */
#ifndef PROBING_CONVERTER_PREPARE_H
#define PROBING_CONVERTER_PREPARE_H

#include "align.h"
#include "append.h"
#include "load_state.h"
#include "sample_rows.h"

/* What all traces of a conversion have in common. Borrowed. sites and stacks are changed by prepare_begin() and prepare_samples() only. */
struct prepare_plan {
    struct callsites *sites;
    struct stackset *stacks;
    struct symbols *symbols;
    const struct align *align;
    const struct append *append; /* what the database already has */
    int64_t since, until;        /* ns UTC; only the time between is wanted */
    uint64_t types;              /* record types that are read; 0: all */
    uint64_t need;               /* record types that become rows; 0: all */
    int partial;                 /* 1: only a part is wanted, and the rest is not read */
};

struct prepared {
    /* For load.h, once prepare_samples() has returned 0. The database's thread sets its db and tick. */
    struct load load;
    struct modules modules;
    struct recorded recorded;
    struct meta meta;
    struct sample_rows *rows;
    const struct input *in;
    unsigned part; /* number of the trace in its file, from 1 */
    /* NULL if the trace came into the file only after the clocks were aligned; `recording` is then "". */
    const struct align_boot *boot;
    char recording[META_RECORDING]; /* see align_recording() */
    /* APPEND_SAME: the database needs nothing of this trace, and the fields that reading it would set are 0. */
    enum append_state state;
    size_t copy; /* not 0: APPEND_SAME because of another input, see align_copy_of() */
    const struct append_trace *was; /* what the database already has of this trace; NULL: nothing */
    /* Its rows in the database stay, and load.shared.first is the first new block. Final after prepare_begin(). */
    int resumed;
};

/* nth: index of the trace in plan->align, SIZE_MAX if it is not there. part: number of the trace in its file, from 1. */
int prepare_read(struct prepared *p, const struct prepare_plan *plan, const struct input *in,
                 unsigned part, struct reader *r, size_t nth);
/* trace: the id that the trace gets unless the database has it under another one. */
int prepare_begin(struct prepared *p, const struct prepare_plan *plan, uint32_t trace);
/* Fills *b with the samples of the next block. Returns 1, or 0 after the last one. */
int prepare_samples(struct prepared *p, struct sample_batch *b);
void prepare_free(struct prepared *p);

#endif
