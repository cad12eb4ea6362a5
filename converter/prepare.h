/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h - one trace on its way into a database, up to what SQLite has to do: who it is of, its modules and symbols, its clock, and
 * its samples with their stacks.
 *
 *     struct prepared p;
 *     err = prepare_read(&p, &plan, in, part, reader, nth); // any thread, many traces at a time
 *     err = prepare_begin(&p, &plan, id);                   // from here on: one trace at a time, in the order of their ids,
 *     while ((err = prepare_samples(&p, &batch)) > 0) ...;  // to the end of this. Functions, frames and stacks get their numbers here
 *     load_rows(&now, &p.load);                             // load.h: the thread of the database
 *     prepare_free(&p);
 *
 * Errors are -ENOMEM. The reader stays the caller's.
 */
#ifndef PROBING_CONVERTER_PREPARE_H
#define PROBING_CONVERTER_PREPARE_H

#include "align.h"
#include "append.h"
#include "load_state.h"
#include "sample_rows.h"

/* What all traces of a conversion have in common. Borrowed; the first row of it changes with prepare_begin() and prepare_samples() alone. */
struct prepare_plan {
    struct callsites *sites;
    struct stackset *stacks;
    struct symbols *symbols;
    const struct align *align;
    const struct append *append; /* what the database has already */
    int64_t since, until;        /* ns UTC: only what lies between */
    uint64_t types;              /* 0: all */
    uint64_t need;               /* the same, of what becomes rows */
    int partial;                 /* not everything is wanted: then the rest is not read at all */
};

struct prepared {
    struct load
        load; /* for load.h, when the samples have ended; the database's thread fills in db, tick */
    struct modules modules;
    struct recorded recorded;
    struct meta meta;
    struct sample_rows *rows;
    const struct input *in;
    unsigned part; /* which trace of its file, from 1 */
    const struct align_boot
        *boot;               /* NULL: the file has grown this trace since the clocks were aligned */
    char recording[160];     /* of which recording it is, where boot is known */
    enum append_state state; /* APPEND_SAME: it is there, and nothing else of this is filled in */
    size_t copy;             /* ... in the same inputs: align_copy_of() */
    const struct append_trace *was; /* what the database has of it, unless it is new */
    int resumed; /* after prepare_begin(): its rows stay, load.first is the first block that is new */
};

/* nth: the trace's number in align, SIZE_MAX: it has none. part counts from 1. */
int prepare_read(struct prepared *p, const struct prepare_plan *plan, const struct input *in,
                 unsigned part, struct reader *r, size_t nth);
/* trace: its id, unless it has one. */
int prepare_begin(struct prepared *p, const struct prepare_plan *plan, uint32_t trace);
/* The next block of samples: 1; 0 at the end. */
int prepare_samples(struct prepared *p, struct sample_batch *b);
void prepare_free(struct prepared *p);

#endif
