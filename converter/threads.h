/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the threads of one trace: who had a tid, and when.
 *
 * The kernel gives a tid out again: a thread record with state 0 (gone) ends a thread, and what
 * comes after it under the same tid is another one.
 *
 *     struct threads t;
 *     threads_init(&t);
 *     threads_record(&t, ts, tid, name, ident, state) ...;   // in the order of their times
 *     struct thread *th = threads_at(&t, tid, ts);           // made up when nobody announced it
 *     threads_free(&t);
 *
 * NULL or -ENOMEM: no memory. Pointers are valid until the next call.
 */
#ifndef PROBING_CONVERTER_THREADS_H
#define PROBING_CONVERTER_THREADS_H

#include "keys.h"

struct thread {
    uint64_t tid, ident;
    uint64_t start, end; /* monotonic ns; start 0, end UINT64_MAX: not seen */
    char *name; /* the last one it had: threading's, else the kernel's; UTF-8, NULL if none */
    char *comm; /* the kernel's */
    uint64_t samples, running, cpu_us;
    uint32_t next; /* later thread of the same tid, index + 1 */
};

struct threads {
    struct thread *t; /* the index + 1 is the local part of its row id */
    size_t n, cap;
    struct keys tids;
    uint32_t *first, *last; /* by tid: index + 1 of its first and last thread */
    size_t tids_cap;
    uint64_t memo_tid; /* looked up last */
    uint32_t memo;
};

void threads_init(struct threads *t);
void threads_free(struct threads *t);
/* name: UTF-8, copied; NULL or "" when it has none. */
int threads_record(struct threads *t, uint64_t ts, uint64_t tid, const char *name, uint64_t ident,
                   int alive);
struct thread *threads_at(struct threads *t, uint64_t tid, uint64_t ts);

#endif
