/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened.h - threads open and index traces while the caller reads the traces that precede them. The walk over the blocks of large files
 * takes most of the time of a question about their last minutes.
 *
 *     struct opened *o = opened_start(in, NULL, 0);
 *     for (i = 0; i < in->n; i++)
 *         if ((err = opened_take(o, i, &reader)) == 0) ...   // as reader_open(); call it in this order, and close the reader
 *     opened_stop(o);
 *
 * Only regular files are opened ahead; pipes, stdin and remote files are opened by the caller's own thread when their turn comes. The
 * number of opened files that were not taken yet is limited.
 */
#ifndef PROBING_CONVERTER_OPENED_H
#define PROBING_CONVERTER_OPENED_H

#include "inputs.h"
#include "reader.h"

struct opened;

/* `in` and the n indexes of reader_open_stored() are borrowed. NULL: no memory. */
struct opened *opened_start(const struct inputs *in, const struct reader_stored *stored, size_t n);
/* Returns 0 or an error of reader_open(). */
int opened_take(struct opened *o, size_t file, struct reader **r);
/* May be called at any time; closes what was not taken. NULL is allowed. */
void opened_stop(struct opened *o);

#endif
