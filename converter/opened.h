/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened.h - traces that threads open and index, while the caller reads those before them: the walk over the blocks of large files is
 * most of what a question about their last minutes takes.
 *
 *     struct opened *o = opened_start(in);
 *     for (i = 0; i < in->n; i++)
 *         if ((err = opened_take(o, i, &reader)) == 0) ...   // as reader_open(); in this order; close it
 *     opened_stop(o);
 *
 * Files alone: pipes, stdin and what is remote are opened by the caller's own thread, when their turn comes. Some files at most are
 * open that were not taken yet.
 */
#ifndef PROBING_CONVERTER_OPENED_H
#define PROBING_CONVERTER_OPENED_H

#include "inputs.h"
#include "reader.h"

struct opened;

/* `in` is borrowed. NULL: no memory. */
struct opened *opened_start(const struct inputs *in);
/* 0 or what reader_open() says. */
int opened_take(struct opened *o, size_t file, struct reader **r);
/* At any time; what was not taken is closed. NULL is allowed. */
void opened_stop(struct opened *o);

#endif
