/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_rows.h - inside the Arrow reader: the samples of the requested traces as plain arrays, a limited number at a time. The tables
 * `samples` (arrow_samples.c) and `stacks` (arrow_stack_rows.c) are filled from them.
 *
 *     struct arrow_rows r = {.sites = 1, .ids = 1};          // which arrays are wanted; all else zero
 *     arrow_rows_init(&r, rq, notes);
 *     r.stacks.func = batch.col[k].names;                    // dictionaries for the names, where they are wanted
 *     while ((rc = arrow_rows_next(&r)) > 0) {
 *         if (r.begun) ... r.t.meta is now that of another trace ...
 *         for (size_t i = 0; i < r.n; i++) ... r.ts[i], r.site[i] ...
 *     }
 *     arrow_rows_free(&r);
 *
 * Work that nobody asks for is not done: without `sites` no stack is resolved. One thread at a time.
 */
#ifndef PROBING_CONVERTER_ARROW_ROWS_H
#define PROBING_CONVERTER_ARROW_ROWS_H

#include "arrow_source.h"
#include "arrow_stacks.h"
#include "resolve.h"

/* rows at a time, few enough for the arrays to stay in the processor's cache */
#define ARROW_ROWS 1024

struct arrow_rows {
    /* Set by the caller: which arrays are wanted. */
    int sites, ids, threads;
    /* The current trace. */
    struct arrow_trace t;
    int begun; /* these are the first rows of the trace */
    struct arrow_stacks stacks;
    /* The rows. */
    size_t n;
    int64_t ts[ARROW_ROWS]; /* ns UTC */
    uint64_t mono[ARROW_ROWS], tid[ARROW_ROWS], stack[ARROW_ROWS], pc[ARROW_ROWS], cpu[ARROW_ROWS],
        count[ARROW_ROWS], flags[ARROW_ROWS], id[ARROW_ROWS];
    uint32_t site[ARROW_ROWS], frame[ARROW_ROWS]; /* with `sites`; 0: none; frame: the innermost */
    int64_t stack_id[ARROW_ROWS];                 /* with `ids` */
    uint32_t thread[ARROW_ROWS];                  /* with `threads`: index in t.meta.threads */
    /* private */
    const struct probing_request *rq;
    struct arrow_notes *notes;
    struct reader_data data;
    struct trace_rows rows;
    int open, loaded;
    size_t block, row;
    struct symbols *symbols;
    struct recorded recorded;
    struct modules modules;
    struct resolver *resolver;
    struct arrow_place {
        uint64_t stack, pc;
        int64_t id;
        uint32_t epoch, site, frame, known;
    } places[4096]; /* recently resolved stacks, by a hash: most samples find theirs here */
    struct {
        uint64_t tid;
        uint32_t thread; /* + 1 */
    } tids[64];
};

/* rq and notes are borrowed until arrow_rows_free(). */
void arrow_rows_init(struct arrow_rows *r, const struct probing_request *rq,
                     struct arrow_notes *notes);
void arrow_rows_free(struct arrow_rows *r);
/* Returns 1: the arrays hold r->n rows (may be 0, even when `begun` is set); 0: there are no more; -errno, after arrow_fail(). */
int arrow_rows_next(struct arrow_rows *r);

#endif
