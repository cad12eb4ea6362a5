/* SPDX-License-Identifier: Apache-2.0 */
#include "threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void threads_init(struct threads *t) {
    memset(t, 0, sizeof *t);
}

void threads_free(struct threads *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->t[i].name), free(t->t[i].comm);
    keys_free(&t->tids);
    free(t->t);
    free(t->first);
    free(t->last);
    memset(t, 0, sizeof *t);
}

/* The number of a tid; *is_new: it has no thread yet. 0: no memory. */
static uint32_t tid_number(struct threads *t, uint64_t tid) {
    int is_new;
    uint32_t k = keys_put(&t->tids, &tid, sizeof tid, &is_new);

    if (k > t->tids_cap) {
        size_t cap = t->tids_cap * 2 + 64;
        void *first = realloc(t->first, cap * sizeof *t->first);
        if (first)
            t->first = first;
        void *last = realloc(t->last, cap * sizeof *t->last);
        if (last)
            t->last = last;
        if (!first || !last)
            return 0;
        t->tids_cap = cap;
    }
    if (k && is_new)
        t->first[k - 1] = t->last[k - 1] = 0;
    return k;
}

static struct thread *append(struct threads *t, uint32_t k, uint64_t tid, uint64_t start) {
    if (t->n == t->cap) {
        size_t cap = t->cap * 2 + 64;
        void *p = cap < UINT32_MAX ? realloc(t->t, cap * sizeof *t->t) : NULL;
        if (!p)
            return NULL;
        t->t = p;
        t->cap = cap;
    }
    t->t[t->n++] = (struct thread){.tid = tid, .start = start, .end = UINT64_MAX};
    if (t->last[k - 1])
        t->t[t->last[k - 1] - 1].next = (uint32_t)t->n;
    else
        t->first[k - 1] = (uint32_t)t->n;
    t->last[k - 1] = (uint32_t)t->n;
    t->memo = 0;
    return &t->t[t->n - 1];
}

int threads_record(struct threads *t, uint64_t ts, uint64_t tid, const char *name, uint64_t ident,
                   int alive) {
    uint32_t k = tid_number(t, tid);

    if (!k)
        return -ENOMEM;
    struct thread *th = t->last[k - 1] ? &t->t[t->last[k - 1] - 1] : NULL;
    if (!th || (alive && th->end != UINT64_MAX)) {
        th = append(t, k, tid, alive ? ts : 0);
        if (!th)
            return -ENOMEM;
    }
    if (!alive && th->end == UINT64_MAX)
        th->end = ts;
    if (ident)
        th->ident = ident;
    if (name && *name) {
        char *copy = strdup(name);
        if (!copy)
            return -ENOMEM;
        free(th->name);
        th->name = copy;
    }
    return 0;
}

struct thread *threads_at(struct threads *t, uint64_t tid, uint64_t ts) {
    uint32_t i;

    if (t->memo && t->memo_tid == tid) {
        i = t->memo;
    } else {
        uint32_t k = tid_number(t, tid);
        if (!k)
            return NULL;
        if (!t->first[k - 1])
            return append(t, k, tid, 0);
        i = t->first[k - 1];
        t->memo = i;
        t->memo_tid = tid;
    }
    /* the last that had not ended before ts: its own record may come a little late */
    while (t->t[i - 1].next && t->t[i - 1].end < ts)
        i = t->t[i - 1].next;
    return &t->t[i - 1];
}
