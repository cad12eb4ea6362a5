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
    int partial;                 /* not everything is wanted, and the rest is not read at all */
};

struct prepared {
    struct load
        load; /* ready for load.h once the samples have ended; the database's thread sets db and tick */
    struct modules modules;
    struct recorded recorded;
    struct meta meta;
    struct sample_rows *rows;
    const struct input *in;
    unsigned part; /* number of the trace in its file, from 1 */
    const struct align_boot
        *boot; /* NULL: the file has grown this trace since the clocks were aligned */
    char recording[META_RECORDING]; /* of which recording it is, where boot is known */
    enum append_state state; /* APPEND_SAME: it is there, and nothing else of this is filled in */
    size_t copy;             /* ... in the same inputs: align_copy_of() */
    const struct append_trace *was; /* what the database has of it, unless it is new */
    int resumed; /* set by prepare_begin(): its rows stay, and load.shared.first is the first new block */
};

/* nth: the number of the trace in align; SIZE_MAX: it has none. part counts from 1. */
int prepare_read(struct prepared *p, const struct prepare_plan *plan, const struct input *in,
                 unsigned part, struct reader *r, size_t nth);
/* trace: its id, unless it has one already. */
int prepare_begin(struct prepared *p, const struct prepare_plan *plan, uint32_t trace);
/* Gives the next block of samples. Returns 1; 0 at the end. */
int prepare_samples(struct prepared *p, struct sample_batch *b);
void prepare_free(struct prepared *p);

#endif
