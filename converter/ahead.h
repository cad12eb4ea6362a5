/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - the traces of many files, prepared by threads while the caller inserts those before them.
 *
 *     struct ahead *a;
 *     err = ahead_start(&a, &options);
 *     while ((in = ahead_file(a, &err))) {             // each file that is wanted, in their order; err: what reader_open() said
 *         while (!err && (p = ahead_trace(a, &err)))   // each trace of it
 *             ... load_rows(&now, &p->load) ...
 *     }
 *     ahead_stop(a);                                   // at any time
 *
 * Opening, checking and reading what names things goes on for several files at once. Decoding and resolving samples is done by one
 * thread at a time, file by file: it is what gives out the numbers of traces, functions and stacks, so that these are the same
 * whatever the number of threads. With one thread all is done within the calls.
 * Memory: threads + 1 files, three blocks of samples of each.
 */
#ifndef PROBING_CONVERTER_AHEAD_H
#define PROBING_CONVERTER_AHEAD_H

#include "prepare.h"

struct ahead;

struct ahead_options {
    const struct inputs *in;
    const size_t *first; /* the number in plan->align of each file's first trace, and one more */
    const struct prepare_plan *plan;
    uint32_t last_trace; /* ids go on from here */
    unsigned threads;    /* with the caller's own, at least 1 */
};

/* What the options point to is borrowed until ahead_stop(). 0 or -ENOMEM. */
int ahead_start(struct ahead **a, const struct ahead_options *options);
/* The next file, NULL after the last. Ends the one before. *err: 0, or what reader_open() says. */
const struct input *ahead_file(struct ahead *a, int *err);
/* The next trace of the file, NULL after the last. Ends the one before. *err: 0 or -ENOMEM. */
struct prepared *ahead_trace(struct ahead *a, int *err);
/* Which of the inputs the file is, from 0. */
size_t ahead_at(const struct ahead *a);
/* Ends all threads. NULL is allowed. */
void ahead_stop(struct ahead *a);

#endif
