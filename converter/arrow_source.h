/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_source.h - inside the Arrow reader: the sources of batches, and the iteration over the traces of a request.
 *
 *     struct arrow_source *s;                          // the source of one table, made by arrow_samples.c, arrow_records.c, arrow_sql.c, ...
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
    const struct probing_request *rq; /* a copy that lives as long as the source */
    struct arrow_notes *notes;
    struct arrow_field *fields; /* the fields of the batch: the requested columns */
    size_t nfields;
    /* Puts rows into b. Returns 1: more may come; 0: there are no more (rows may have been put); -errno, after arrow_fail(). */
    int (*next)(struct arrow_source *s, struct arrow_batch *b);
    void (*free)(struct arrow_source *s);
};

/* Chooses the requested columns out of all n: sets s->fields, and *which (malloc'ed) to the index of each. A request without names gets the
 * first `usual` columns. Returns -EINVAL, after arrow_fail(), when there is no such column. */
int arrow_choose(struct arrow_source *s, const struct arrow_field *all, size_t n, size_t usual,
                 unsigned **which);

struct arrow_trace {
    struct inputs in;
    struct reader *reader; /* NULL: none is open */
    struct epochs *epochs;
    struct meta meta;
    int64_t id; /* 1, 2, ... over all traces of the request, numbered as the converter does */
    size_t at;  /* index of the next file */
    size_t read;
    const char *path;
    char *run;       /* UTF-8 */
    int64_t attempt; /* index among the processes of the run with its rank, as rq->clocks says */
    sqlite3 *clocks; /* the database rq->clocks; NULL: none */
    int started;
    struct keys
        twice;    /* of a file of joined traces: the recordings that occur in it several times */
    size_t *best; /* for each recording in `twice`: index of its longest trace, which is used */
    size_t part;  /* index of the trace in its file: 0, 1, ... */
};

/* Opens the next trace that the request asks for. Returns 1, 0 when there are no more, or -errno. */
int arrow_trace_next(struct arrow_trace *t, const struct probing_request *rq,
                     struct arrow_notes *notes);
void arrow_trace_close(struct arrow_trace *t);
/* Returns 1 when block i may have records of the type in the requested time. */
int arrow_trace_wants(struct arrow_trace *t, const struct probing_request *rq, size_t i,
                      unsigned type);

/* Returns a number that is always the same for a recording, wherever its file lies and even when it has grown. */
int64_t arrow_trace_recording(const struct arrow_trace *t);

/* Each function makes the source of one kind of table. rq and notes are borrowed as long as the source lives. Returns NULL when there is no
 * memory, or (said in notes) when the request names a column that the table does not have. */
struct arrow_source *arrow_traces(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_samples(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_stack_rows(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_records(const struct probing_request *rq, struct arrow_notes *notes);
struct arrow_source *arrow_sql(const struct probing_request *rq, struct arrow_notes *notes);

#endif
