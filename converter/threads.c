/* SPDX-License-Identifier: Apache-2.0 */
#include "threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void threads_init(struct threads *t) {
    memset(t, 0, sizeof *t);
}

void threads_free(struct threads *t) {
    free(t->t);
    free(t->slots);
    free(t->texts);
    memset(t, 0, sizeof *t);
}

/* Returns the slot of a tid; it contains 0 when the tid has no thread yet. */
static uint32_t *slot_of(const struct threads *t, uint64_t tid) {
    size_t mask = t->nslots - 1, i = (tid * 0x9e3779b97f4a7c15u >> 32) & mask;

    while (t->slots[i] && t->t[t->slots[i] - 1].tid != tid)
        i = (i + 1) & mask;
    return &t->slots[i];
}

/* Does the same after making space for a new one. NULL: no memory. */
static uint32_t *tid_slot(struct threads *t, uint64_t tid) {
    if (t->ntids * 4 >= t->nslots * 3) {
        struct threads more = *t;
        more.nslots = t->nslots ? t->nslots * 2 : 64;
        if (!(more.slots = calloc(more.nslots, sizeof *more.slots)))
            return NULL;
        for (size_t i = 0; i < t->nslots; i++)
            if (t->slots[i])
                *slot_of(&more, t->t[t->slots[i] - 1].tid) = t->slots[i];
        free(t->slots);
        *t = more;
    }
    return slot_of(t, tid);
}

static struct thread *append(struct threads *t, uint32_t *slot, uint64_t tid, uint64_t start) {
    if (t->n == t->cap) {
        size_t cap = t->cap + t->cap / 2 + 64;
        void *p = cap < UINT32_MAX ? realloc(t->t, cap * sizeof *t->t) : NULL;
        if (!p)
            return NULL;
        t->t = p;
        t->cap = cap;
    }
    t->t[t->n++] = (struct thread){.tid = tid, .start = start, .end = UINT64_MAX};
    if (*slot) {
        struct thread *first = &t->t[*slot - 1];
        t->t[first->last - 1].next = (uint32_t)t->n;
        first->last = (uint32_t)t->n;
    } else {
        *slot = t->t[t->n - 1].last = (uint32_t)t->n;
        t->ntids++;
    }
    t->memo = 0;
    return &t->t[t->n - 1];
}

const char *threads_text(const struct threads *t, uint32_t text) {
    return text ? t->texts + text : NULL;
}

/* Moves a text of a thread into the new memory; a text that the previous thread has too is moved once. */
static uint32_t move(const struct threads *from, struct threads *to, uint32_t text, uint32_t was,
                     uint32_t *is) {
    size_t n = text ? strlen(from->texts + text) + 1 : 0;

    if (text && text != was) {
        *is = (uint32_t)to->ntexts;
        memcpy(to->texts + to->ntexts, from->texts + text, n);
        to->ntexts += n;
    }
    return text ? *is : 0;
}

/* Makes space for a text of n bytes. Names that no thread has any more are dropped, because a program may rename a thread for each request.
 * Returns 0 or -ENOMEM. */
static int make_space(struct threads *t, size_t n) {
    struct threads more = *t;
    size_t need = n + 1;
    uint32_t was = 0, is = 0, text;

    if (t->ntexts + n <= t->texts_cap)
        return 0;
    for (size_t i = 0; i < t->n; i++) {
        const uint32_t has[2] = {t->t[i].name, t->t[i].comm};
        for (int k = 0; k < 2; k++) {
            need += has[k] && has[k] != was ? strlen(t->texts + has[k]) + 1 : 0;
            was = has[k] ? has[k] : was;
        }
    }
    more.texts_cap = need + need / 2 + 4096;
    if (more.texts_cap > UINT32_MAX || !(more.texts = malloc(more.texts_cap)))
        return -ENOMEM;
    more.ntexts = 1;
    was = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t *const has[2] = {&t->t[i].name, &t->t[i].comm};
        for (int k = 0; k < 2; k++) {
            text = *has[k];
            *has[k] = move(t, &more, text, was, &is);
            was = text ? text : was;
        }
    }
    free(t->texts);
    *t = more;
    return 0;
}

/* Returns the place of a text: `had`, or the text that was put last, if it is the same. 0: no memory. */
static uint32_t put_text(struct threads *t, uint32_t had, const char *text) {
    size_t n = strlen(text) + 1;

    if (had && strcmp(t->texts + had, text) == 0)
        return had;
    if (t->ntexts > n && t->texts[t->ntexts - n - 1] == 0 &&
        memcmp(t->texts + t->ntexts - n, text, n) == 0)
        return (uint32_t)(t->ntexts - n);
    if (make_space(t, n) != 0)
        return 0;
    memcpy(t->texts + t->ntexts, text, n);
    t->ntexts += n;
    return (uint32_t)(t->ntexts - n);
}

int threads_record(struct threads *t, uint64_t ts, uint64_t tid, const char *name, const char *comm,
                   uint64_t ident, int alive) {
    uint32_t *slot = tid_slot(t, tid);

    if (!slot)
        return -ENOMEM;
    struct thread *th = *slot ? &t->t[t->t[*slot - 1].last - 1] : NULL;
    if (!th || (alive && th->end != UINT64_MAX)) {
        th = append(t, slot, tid, alive ? ts : 0);
        if (!th)
            return -ENOMEM;
    }
    if (!alive && th->end == UINT64_MAX)
        th->end = ts;
    if (ident)
        th->ident = ident;
    if (name && *name && !(th->name = put_text(t, th->name, name)))
        return -ENOMEM;
    if (comm && *comm && !(th->comm = put_text(t, th->comm, comm)))
        return -ENOMEM;
    return 0;
}

struct thread *threads_at(struct threads *t, uint64_t tid, uint64_t ts) {
    uint32_t i;

    if (t->memo && t->memo_tid == tid) {
        i = t->memo;
    } else {
        uint32_t *slot = tid_slot(t, tid);
        if (!slot)
            return NULL;
        if (!*slot)
            return append(t, slot, tid, 0);
        i = *slot;
        t->memo = i;
        t->memo_tid = tid;
    }
    /* the first that had not ended before ts, since its own record may come a little late */
    while (t->t[i - 1].next && t->t[i - 1].end < ts)
        i = t->t[i - 1].next;
    return &t->t[i - 1];
}
