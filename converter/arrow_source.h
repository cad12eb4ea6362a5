/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_source.h - inside the Arrow reader: what makes batches, and how the traces of a request are gone through.
 *
 *     struct arrow_source *s;                          // one table; arrow_samples.c, arrow_records.c, arrow_sql.c make them
 *     while ((rc = s->next(s, &batch)) > 0) ...        // rows were put
 *     s->free(s);
 *
 *     struct arrow_trace t = {0};                      // within next():
 *     while ((rc = arrow_trace_next(&t, s->rq, s->notes)) > 0)
 *         for (i = 0; i < reader_blocks(t.reader); i++)
 *             if (arrow_trace_wants(&t, s->rq, i, TRACE_sample) && reader_load(...) == 0) ...
 *     arrow_trace_close(&t);
 *
 * A source belongs to one stream and is used by one thread at a time; several streams share nothing.
 */
#ifndef PROBING_CONVERTER_ARROW_SOURCE_H
#define PROBING_CONVERTER_ARROW_SOURCE_H

#include "arrow_batch.h"
#include "arrow_notes.h"
#include "arrow_request.h"
#include "dict.h"
#include "inputs.h"
#include "meta.h"

#include <sqlite3.h>

struct arrow_source {
    const struct probing_request *rq; /* a copy, lives as long */
    struct arrow_notes *notes;
    struct arrow_field *fields; /* of the batch: what was asked for */
    size_t nfields;
    /* Puts rows. 1: more may come; 0: that was all (rows may have been put); -errno, said by arrow_fail(). */
    int (*next)(struct arrow_source *s, struct arrow_batch *b);
    void (*free)(struct arrow_source *s);
};

/* The columns of a request out of all that there are: s->fields, and in *which (malloc'ed) the index of each. Without names in the
 * request the first `usual`. -EINVAL: no such column, said. */
int arrow_choose(struct arrow_source *s, const struct arrow_field *all, size_t n, size_t usual,
                 unsigned **which);

struct arrow_trace {
    struct inputs in;
    struct reader *reader; /* NULL: none is open */
    struct epochs *epochs;
    struct meta meta;
    int64_t id; /* 1, 2, ... over all traces of the request, as the converter numbers them */
    size_t at;  /* next file */
    size_t read;
    const char *path;
    char *run;       /* UTF-8 */
    int64_t attempt; /* of the run's processes with its rank, as rq->clocks knows it */
    sqlite3 *clocks; /* rq->clocks, NULL: none */
    int started;
    struct keys
        twice; /* of the file that is open, where traces are joined in it: recordings that it has several times */
    size_t *best; /* the part of each that counts, the longest */
    size_t part;  /* of the file: 0, 1, ... */
};

/* Opens the next trace that the request asks for. 1; 0: no more; -errno. */
int arrow_trace_next(struct arrow_trace *t, const struct probing_request *rq,
                     struct arrow_notes *notes);
void arrow_trace_close(struct arrow_trace *t);
/* Whether block i may have records of the type in the time that is asked for. */
int arrow_trace_wants(struct arrow_trace *t, const struct probing_request *rq, size_t i,
                      unsigned type);

/* The same number for a recording wherever its file lies, also when it has grown. */
int64_t arrow_trace_recording(const struct arrow_trace *t);

/* Each: the rows of one kind of table. rq and notes are borrowed, for the source's life. NULL: no memory, or the request names a column
 * that the table has not (said in notes). */
struct arrow_source *arrow_traces(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_samples(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_stack_rows(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_records(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_sql(const struct probing_request *rq, struct arrow_notes *notes);

#endif
