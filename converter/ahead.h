/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - threads prepare the traces of many files while the caller inserts the traces that precede them.
 *
 *     struct ahead *a;
 *     err = ahead_start(&a, &options);
 *     while ((in = ahead_file(a, &err))) {             // each file that is wanted, in their order; err: what reader_open() said
 *         while (!err && (p = ahead_trace(a, &err)))   // each trace of it
 *             ... load_rows(&now, &p->load) ...
 *     }
 *     ahead_stop(a);                                   // at any time
 *
 * Several files are opened and checked, and their naming records read, at the same time. Samples are decoded and resolved by one thread at
 * a time, file by file, because that assigns the numbers of traces, functions and stacks: so the numbers do not depend on the number of
 * threads. With one thread, all work is done inside the calls. Memory use: threads + 1 files, and three blocks of samples for each of them.
 */
#ifndef PROBING_CONVERTER_AHEAD_H
#define PROBING_CONVERTER_AHEAD_H

#include "prepare.h"

struct ahead;

struct ahead_options {
    const struct inputs *in;
    /* for each file, the number of its first trace in plan->align; then one entry for the end */
    const size_t *first;
    const struct prepare_plan *plan;
    uint32_t last_trace; /* highest trace id given out so far */
    unsigned threads;    /* number of threads including the caller's own, at least 1 */
};

/* Everything that the options point to is borrowed until ahead_stop(). Returns 0 or -ENOMEM. */
int ahead_start(struct ahead **a, const struct ahead_options *options);
/* Returns the next file, or NULL after the last one, and releases the previous file. *err is 0 or the error of reader_open(). */
const struct input *ahead_file(struct ahead *a, int *err);
/* Returns the next trace of the file, or NULL after the last one, and releases the previous trace. *err is 0 or -ENOMEM. */
struct prepared *ahead_trace(struct ahead *a, int *err);
/* Returns the index of the current file among the inputs, from 0. */
size_t ahead_at(const struct ahead *a);
/* Stops all threads. `a` may be NULL. */
void ahead_stop(struct ahead *a);

#endif
