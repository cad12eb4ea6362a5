/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_inputs.c - makes an alignment from files. Declared in align.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "align_inside.h"
#include "opened.h"

struct part {
    const struct when *since, *until;
    int64_t first, last; /* first and last time of all data, by each trace's own clock */
};

#define KEPT_MOST                                                                                  \
    ((size_t)24 << 20) /* bytes for what opening files finds out; usually enough for 1.5 GB */

/* ns before and after the requested time, in which collectives are read too */
#define AROUND 60000000000ll

/* Returns by how much the trace's time of day is ahead of its CLOCK_MONOTONIC; without an anchor its times are those of CLOCK_MONOTONIC. */
static int64_t ahead_of(const struct trace_of *t) {
    return t->start_utc ? t->start_utc - (int64_t)t->start : 0;
}

/* Converts the requested time to the trace's CLOCK_MONOTONIC, as far as the trace's own clock tells. */
static void part_of(const struct part *p, const struct trace_of *t, uint64_t *lo, uint64_t *hi) {
    int64_t behind = -ahead_of(t), from, to;

    *lo = 0;
    *hi = UINT64_MAX;
    if (!p)
        return;
    if (p->since->from) {
        from = when_add(when_add(when_utc(p->since, p->first, p->last), behind), -AROUND);
        *lo = from > 0 ? (uint64_t)from : 0;
    }
    if (p->until->from) {
        to = when_add(when_add(when_utc(p->until, p->first, p->last), behind), AROUND);
        *hi = to > 0 ? (uint64_t)to : UINT64_MAX;
    }
}

/* First pass over the traces of a file: reads their processes, keeps what opening the file found out, and closes it. Returns 0 or -ENOMEM. */
static int read_whose(struct align *a, struct reader *r, size_t file, int all, size_t *budget) {
    int more = 1, err = 0;

    a->kept[file] = reader_keep(r, budget);
    for (; !err && more > 0; more = err ? 0 : reader_next(r))
        if ((err = align_trace(a, r, all)) == 0)
            a->trace[a->ntraces - 1].file = file;
    reader_close(r);
    return more < 0 ? -ENOMEM : err;
}

/* Second pass, over the nth trace and the following ones of the file: reads what they share with others in the requested part of the time
 * (NULL: all of it) and, if the first pass has left them out, their clock anchors. */
static int read_shared(struct align *a, struct reader *r, size_t nth, const struct part *p,
                       int anchors) {
    int more = 1, err = 0;

    for (; !err && more > 0 && nth < a->ntraces; nth++, more = err ? 0 : reader_next(r)) {
        uint64_t lo, hi;
        part_of(p, &a->trace[nth], &lo, &hi);
        if (anchors)
            err = align_anchors(a, nth, r, lo, hi);
        if (err || !align_wanted(a))
            continue;
        struct epochs *es = epochs_new(r);
        err = es ? align_collectives(a, nth, r, es, lo, hi) : -ENOMEM;
        epochs_free(es);
    }
    reader_close(r);
    return more < 0 ? -ENOMEM : err;
}

const struct reader_kept *align_kept(const struct align *a, size_t file) {
    return file < a->nkept ? a->kept[file] : NULL;
}

static int all_have_matches(const struct align *a) {
    uint8_t *have = calloc(a->nboots + 1, 1);
    size_t n = 0;

    for (size_t i = 0; have && i < a->nmatches; i++) {
        n += !have[a->match[i].boot];
        have[a->match[i].boot] = 1;
    }
    free(have);
    return n == a->nboots;
}

static int read_all_shared(struct align *a, const struct inputs *in, const size_t *first,
                           const struct part *p, int anchors, int (*tick)(void *ctx, double part),
                           void *ctx) {
    int err = 0;

    for (size_t i = 0; !err && i < in->n; i++) {
        struct reader *r;
        if (first[i + 1] > first[i] &&
            reader_open_kept(&r, in->file[i].path, align_kept(a, i)) == 0)
            err = read_shared(a, r, first[i], p, anchors);
        if (!err && tick && tick(ctx, 0))
            break;
    }
    return err;
}

/* Finds the traces of the same recording, in whatever files they are; the longest one counts. */
static int find_copies(struct align *a) {
    struct trace_of **best = calloc(a->ntraces + 1, sizeof(struct trace_of *)); /* by recording */
    struct keys names;
    int err = best ? 0 : -ENOMEM, is_new;
    char name[META_RECORDING];

    keys_init(&names);
    for (size_t i = 0; !err && i < a->ntraces; i++) {
        struct trace_of *t = &a->trace[i];
        align_recording(a, i, name);
        uint32_t id = keys_put(&names, name, strlen(name), &is_new);
        if (id == 0) {
            err = -ENOMEM;
            break;
        }
        struct trace_of **b = &best[id - 1];
        if (is_new) {
            *b = t;
        } else {
            struct trace_of *longer = t->bytes > (*b)->bytes ? t : *b;
            (longer == t ? *b : t)->copy = longer->file + 1;
            *b = longer;
        }
    }
    keys_free(&names);
    free(best);
    return err;
}

struct align *align_inputs(const struct inputs *in, const struct reader_stored *stored,
                           size_t nstored, size_t *first, const struct when *since,
                           const struct when *until, int (*tick)(void *ctx, double part),
                           void *ctx) {
    struct align *a = align_new();
    struct part p = {since, until, INT64_MAX, INT64_MIN};
    size_t budget = KEPT_MOST;
    struct opened *o = opened_start(in, stored, nstored);
    int is_part = since->from || until->from;
    int err = a && o && (a->kept = calloc(in->n + 1, sizeof(struct reader_kept *))) ? 0 : -ENOMEM;

    if (a && a->kept)
        a->nkept = in->n;
    for (size_t i = 0; !err && i < in->n; i++) {
        struct reader *r;
        first[i] = a->ntraces;
        if (opened_take(o, i, &r) == 0) /* otherwise the conversion will report why */
            err = read_whose(a, r, i, !is_part, &budget);
        if (!err && tick && tick(ctx, 0))
            break;
    }
    opened_stop(o);
    for (size_t i = 0; !err && i < a->ntraces; i++) {
        const struct trace_of *t = &a->trace[i];
        int64_t from = when_add((int64_t)t->first, ahead_of(t)),
                to = when_add((int64_t)t->last, ahead_of(t));
        if (t->last) {
            p.first = from < p.first ? from : p.first;
            p.last = to > p.last ? to : p.last;
        }
    }
    if (!err && (err = find_copies(a)) == 0) {
        first[in->n] = a->ntraces;
        if (is_part)
            err = read_all_shared(a, in, first, &p, 1, tick, ctx);
        if (!err && align_wanted(a) && !all_have_matches(a)) {
            a->nmatches = 0;
            err = read_all_shared(a, in, first, NULL, is_part, tick, ctx);
        }
    }
    if (err) {
        align_free(a);
        return NULL;
    }
    return a;
}
