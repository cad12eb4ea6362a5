/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct torch_step *add(struct torch_steps *t) {
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        struct torch_step *s = realloc(t->s, cap * sizeof *s);
        if (!s)
            return NULL;
        t->s = s;
        t->cap = cap;
    }
    memset(&t->s[t->n], 0, sizeof *t->s);
    return &t->s[t->n++];
}

int torch_steps_event(struct torch_steps *t, uint64_t tid, const struct torch_item *e) {
    if (!t->first || e->ts < t->first) {
        t->first = e->ts;
        t->missed |= t->dropped > 0;
    }
    if (e->kind == TORCH_STEP) {
        if (t->before && t->grouped) /* the last span is this event's own step */
            t->s[t->n - 1].end = t->before;
        t->before = 0;
        int goes_on = e->arg == TORCH_GOES_ON;
        t->missed |= goes_on && !t->n && t->dropped;
        goes_on = goes_on && t->n && t->s[t->n - 1].source == TORCH_EVALUATION;
        struct torch_step *s = goes_on ? &t->s[t->n - 1] : add(t);
        if (!s)
            return -ENOMEM;
        s->number = e->a;
        s->end = s->told = e->ts - e->b;
        s->source = e->arg == TORCH_GOES_ON ? TORCH_EVALUATION : (unsigned)e->arg;
        t->leader = s->tid = tid;
        t->grouped = s->source == TORCH_BY_OPTIMIZER;
        t->depth = 0;
        return 0;
    }
    if (torch_steps_waits(t, tid))
        return 0;
    if (e->kind == TORCH_SPAN && e->arg == TORCH_SPAN_OPTIMIZER)
        t->depth++;
    else if (e->kind == TORCH_EXIT && t->depth && --t->depth == 0) {
        t->before = t->s[t->n - 1].end;
        t->s[t->n - 1].end = e->ts;
    } else if (e->kind == TORCH_ENTER ||
               (e->kind != TORCH_EXIT && e->kind != TORCH_OPEN && !t->depth))
        t->grouped = 0; /* a forward pass, including those of an optimizer's closure */
    return 0;
}

static int by_end(const void *a, const void *b) {
    const struct torch_step *x = a, *y = b;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

int torch_steps_ready(struct torch_steps *t) {
    uint64_t begin = t->first, number = t->dropped_number, least = UINT64_MAX;
    int evaluated = 0; /* 1: there was evaluation between this and the next step */
    unsigned source = TORCH_BY_ROOT;
    if (!t->first)
        return 0;
    if (t->dropped) {
        begin = t->dropped_end;
        source = (unsigned)t->dropped_source;
    }
    if (t->n)
        qsort(t->s, t->n, sizeof *t->s, by_end);
    for (size_t i = t->n; i-- > 0;) {
        struct torch_step *s = &t->s[i];
        if (torch_steps_by_root(s->source) && s->number >= least) {
            evaluated |= s->source == TORCH_BY_ROOT;
            s->source = evaluated ? TORCH_EVALUATION : TORCH_WITHIN;
        } else if (torch_steps_is(s)) {
            least = s->number < least ? s->number : least;
            evaluated = 0;
        }
        evaluated |= s->source == TORCH_EVALUATION;
    }
    t->missed |= t->dropped_root > least || (t->dropped && t->n && t->s[0].end < begin);
    for (size_t i = 0; i < t->n; i++) {
        t->s[i].begin = begin;
        if (t->s[i].source == TORCH_WITHIN)
            t->s[i].end = begin;
        begin = t->s[i].end;
        if (!torch_steps_is(&t->s[i]))
            continue;
        number = t->s[i].number + 1;
        source = t->s[i].source;
    }
    struct torch_step *last = add(t);
    if (!last)
        return -ENOMEM;
    last->begin = begin;
    last->number = number;
    last->source = source;
    last->tid = t->leader;
    for (size_t i = 0, part = SIZE_MAX; i < t->n; i++) {
        struct torch_step *s = &t->s[i];
        int is = torch_steps_is(s);
        s->part = part != SIZE_MAX && (is || s->source == TORCH_PART) ? (unsigned)(i - part) : 0;
        part = is ? SIZE_MAX : s->source == TORCH_PART ? i : part;
    }
    /* not the first: one that is a part of the next step ends where it begins */
    t->memo = t->n - 1;
    return 0;
}

struct torch_step *torch_steps_at(struct torch_steps *t, uint64_t ts) {
    size_t lo = 0, hi = t->n;
    if (!t->n)
        return NULL;
    struct torch_step *m = &t->s[t->memo];
    if (m->begin <= ts && (ts < m->end || !m->end))
        return m;
    t->missed |= t->dropped && ts < t->s[0].begin;
    while (lo + 1 < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->s[mid].begin <= ts)
            lo = mid;
        else
            hi = mid;
    }
    t->memo = lo;
    return &t->s[lo];
}

struct torch_first torch_steps_first(const struct torch_steps *t) {
    size_t i = 0;

    if (t->dropped)
        return t->begun;
    while (i + 1 < t->n && !torch_steps_is(&t->s[i]))
        i++;
    /* With only its own passes before it, it began with the program. */
    uint64_t since = !i ? 0 : t->s[0].source == TORCH_WITHIN ? 1 : t->s[i].begin;
    if (t->dropped_number && t->dropped_number == t->s[i].number)
        since = 0; /* an earlier file has the first step */
    return (struct torch_first){t->s[i].number, since, t->s[i].end};
}

struct torch_step torch_steps_whole(const struct torch_step *s) {
    struct torch_step whole = *s;

    for (const struct torch_step *p = s; (p = torch_steps_part(p)) != NULL;) {
        whole.begin -= p->end - p->begin;
        whole.seq += p->seq;
        for (int k = 0; k < TORCH_PARTS; k++) {
            whole.ns[k] += p->ns[k];
            whole.count[k] += p->count[k];
        }
    }
    return whole;
}

size_t torch_steps_front(const struct torch_steps *t) {
    size_t i = 0;

    while (i + 1 < t->n && t->s[i].source == TORCH_WITHIN)
        i++;
    if (t->s[i].source == TORCH_PART)
        while (i + 1 < t->n && !torch_steps_is(&t->s[i]))
            i++;
    return i;
}

void torch_steps_drop(const struct torch_steps *t, struct torch_steps *kept, size_t n) {
    kept->dropped = t->dropped + n;
    kept->dropped_root = t->dropped_root;
    kept->dropped_end = n ? t->s[n - 1].end : t->dropped_end;
    kept->dropped_number = t->dropped_number;
    kept->dropped_source = t->dropped ? t->dropped_source : TORCH_BY_ROOT;
    kept->first = t->first;
    kept->missed = 0;
    kept->begun = torch_steps_first(t);
    for (size_t i = 0; i < n; i++) {
        const struct torch_step *s = &t->s[i];
        if (!torch_steps_is(s))
            continue;
        kept->dropped_number = s->number + 1;
        kept->dropped_source = s->source;
        if (torch_steps_by_root(s->source) && s->number + 1 > kept->dropped_root)
            kept->dropped_root = s->number + 1;
    }
}

void torch_steps_free(struct torch_steps *t) {
    free(t->s);
    memset(t, 0, sizeof *t);
}
