/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the threads of one trace: which thread had a thread id (tid), and when.
 *
 * The kernel reuses thread ids: a thread record with state 0 (gone) ends a thread, and whatever comes later under the same tid is a new
 * thread.
 *
 *     struct threads t;
 *     threads_init(&t);
 *     threads_record(&t, ts, tid, name, comm, ident, state) ...;   // in the order of their times
 *     struct thread *th = threads_at(&t, tid, ts);           // creates the thread when no record announced it
 *     threads_free(&t);
 *
 * NULL and -ENOMEM mean that there is no memory. Pointers are valid until the next call. A thread takes some 80 bytes plus its name,
 * because a program may start millions.
 */
#ifndef PROBING_CONVERTER_THREADS_H
#define PROBING_CONVERTER_THREADS_H

#include <stddef.h>
#include <stdint.h>

struct thread {
    uint64_t tid, ident;
    uint64_t start, end; /* monotonic ns; start 0, end UINT64_MAX: not seen */
    uint64_t samples, running, cpu_us;
    uint32_t name, comm; /* offsets for threads_text() */
    uint32_t next;       /* next thread with the same tid: index + 1 */
    uint32_t last;       /* in the first thread of a tid: its last thread, index + 1 */
};

struct threads {
    struct thread *t; /* a thread's index + 1 is the local part of its row id */
    size_t n, cap;
    /* hash table by tid: 1 + index of its first thread, 0: free; its size is a power of two */
    uint32_t *slots;
    size_t nslots, ntids;
    char *texts; /* each with its NUL; offsets begin at 1 */
    size_t ntexts, texts_cap;
    uint64_t memo_tid; /* the last look-up */
    uint32_t memo;
};

void threads_init(struct threads *t);
void threads_free(struct threads *t);
/* name: UTF-8, copied; NULL or "" when the thread has none. comm: the kernel's name, likewise. */
int threads_record(struct threads *t, uint64_t ts, uint64_t tid, const char *name, const char *comm,
                   uint64_t ident, int alive);
struct thread *threads_at(struct threads *t, uint64_t tid, uint64_t ts);
/* Returns the text of a thread's name (the last one it had: threading's, else the kernel's) or comm; NULL: none. */
const char *threads_text(const struct threads *t, uint32_t text);

#endif
