/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_rows.h - the samples of a trace as rows of table `sample`, block by block, made by a thread of its own.
 *
 *     struct sample_rows *s;
 *     const struct sample_batch *batch = NULL;
 *     int err = sample_rows_start(&s, load);
 *     while ((err = sample_rows_next(s, &batch)) > 0)
 *         for (i = 0; i < batch->n; i++) ... batch->rows[i] ...
 *     sample_rows_stop(s);
 *
 * The thread decompresses, decodes, resolves and sorts (rows of a block come in the order of their
 * times) while the caller inserts: half of converting each. While it runs it alone uses the load's reader,
 * epochs, meta, resolver and symbols. Where no thread can be had the same is done in sample_rows_next().
 */
#ifndef PROBING_CONVERTER_SAMPLE_ROWS_H
#define PROBING_CONVERTER_SAMPLE_ROWS_H

#include "load.h"

struct sample_row {
    int64_t ts; /* ns UTC */
    int64_t thread;
    uint64_t cpu_us, count, flags;
    uint32_t stack; /* callsite, 0: none */
};

struct sample_batch {
    struct sample_row *rows;
    size_t n, cap;
    double part; /* of the file, where it comes from: 0..1 */
};

struct sample_rows;

/* 0 or -ENOMEM */
int sample_rows_start(struct sample_rows **out, struct load *l);
/* The next batch, which is never empty, valid until the next call. *batch is NULL at first, and then what the
 * call before gave. 1; 0 at the end; -ENOMEM. */
int sample_rows_next(struct sample_rows *s, const struct sample_batch **batch);
/* Ends the thread, wherever it is. NULL is allowed. */
void sample_rows_stop(struct sample_rows *s);

#endif
