/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_rows.h - turns the samples of a trace into rows of table `sample`, block by block: decompressed, decoded, resolved and sorted (the
 * rows of a block come in the order of their times).
 *
 *     struct sample_rows *s;
 *     struct sample_batch b = {0};
 *     int err = sample_rows_new(&s, load);
 *     while ((err = sample_rows_fill(s, &b)) > 0)
 *         for (i = 0; i < b.n; i++) ... b.rows[i] ...
 *     free(b.rows);
 *     sample_rows_free(s);
 *
 * Any thread, one at a time. Until the end, no other code may use the load's reader, epochs, meta, resolver, strips and sums.
 */
#ifndef PROBING_CONVERTER_SAMPLE_ROWS_H
#define PROBING_CONVERTER_SAMPLE_ROWS_H

#include "load_state.h"

struct sample_rows;

/* Returns 0 or -ENOMEM. */
int sample_rows_new(struct sample_rows **out, struct load *l);
/* Puts the rows of the next block that has samples into b, whose memory is reused. Where rows are not wanted b may stay empty; the call
 * returns all the same, so that the caller can look at signals. Returns 1; 0 at the end; -ENOMEM. */
int sample_rows_fill(struct sample_rows *s, struct sample_batch *b);
/* NULL is allowed. */
void sample_rows_free(struct sample_rows *s);

#endif
