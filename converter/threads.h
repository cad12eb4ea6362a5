/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the threads of one trace: who had a tid, and when.
 *
 * The kernel gives a tid out again: a thread record with state 0 (gone) ends a thread, and what
 * comes after it under the same tid is another one.
 *
 *     struct threads t;
 *     threads_init(&t);
 *     threads_record(&t, ts, tid, name, comm, ident, state) ...;   // in the order of their times
 *     struct thread *th = threads_at(&t, tid, ts);           // made up when nobody announced it
 *     threads_free(&t);
 *
 * NULL or -ENOMEM: no memory. Pointers are valid until the next call. A thread takes some 80 bytes and its name: a program may start millions.
 */
#ifndef PROBING_CONVERTER_THREADS_H
#define PROBING_CONVERTER_THREADS_H

#include <stddef.h>
#include <stdint.h>

struct thread {
    uint64_t tid, ident;
    uint64_t start, end; /* monotonic ns; start 0, end UINT64_MAX: not seen */
    uint64_t samples, running, cpu_us;
    uint32_t name, comm; /* texts: threads_text() */
    uint32_t next;       /* later thread of the same tid, index + 1 */
    uint32_t last;       /* of a tid's first thread: its last one, index + 1 */
};

struct threads {
    struct thread *t; /* the index + 1 is the local part of its row id */
    size_t n, cap;
    uint32_t *slots; /* by tid: index + 1 of its first thread, 0 free; a power of two of them */
    size_t nslots, ntids;
    char *texts; /* each with its NUL, from 1 on */
    size_t ntexts, texts_cap;
    uint64_t memo_tid; /* looked up last */
    uint32_t memo;
};

void threads_init(struct threads *t);
void threads_free(struct threads *t);
/* name: UTF-8, copied; NULL or "" when it has none. comm: the kernel's, likewise. */
int threads_record(struct threads *t, uint64_t ts, uint64_t tid, const char *name, const char *comm,
                   uint64_t ident, int alive);
struct thread *threads_at(struct threads *t, uint64_t tid, uint64_t ts);
/* Of a thread's name (the last one it had: threading's, else the kernel's) or comm; NULL: none. */
const char *threads_text(const struct threads *t, uint32_t text);

#endif
