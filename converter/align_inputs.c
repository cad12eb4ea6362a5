/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_inputs.c - an alignment out of files: declared in align.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "align_inside.h"

struct part {
    const struct when *since, *until;
    int64_t first, last; /* of all data, by each trace's own clock */
};

#define AROUND 60000000000ll /* ns of collectives before and after what is asked for */

/* The part by a trace's own clock, as far as that knows. */
static void part_of(const struct part *p, const struct trace_of *t, uint64_t *lo, uint64_t *hi) {
    int64_t ahead = t->start_utc - (int64_t)t->start, from, to;

    *lo = 0;
    *hi = UINT64_MAX;
    if (p && p->since->from && (from = when_utc(p->since, p->first, p->last) - ahead - AROUND) > 0)
        *lo = (uint64_t)from;
    if (p && p->until->from && (to = when_utc(p->until, p->first, p->last) - ahead + AROUND) > 0)
        *hi = (uint64_t)to;
}

/* One reading of a file's traces. nth SIZE_MAX: whose they are; else the collectives of the nth trace and those after it. 0 or -ENOMEM. */
static int read_file(struct align *a, const char *path, size_t nth, const struct part *p) {
    struct reader *r;
    int more = 1, err = 0;

    if (reader_open(&r, path) != 0)
        return 0; /* whoever converts it says why */
    for (; !err && more > 0; more = err ? 0 : reader_next(r)) {
        struct epochs *es = epochs_new(r);
        uint64_t lo, hi;
        if (!es)
            err = -ENOMEM;
        else if (nth == SIZE_MAX)
            err = align_trace(a, r, es);
        else if (nth < a->ntraces) {
            part_of(p, &a->trace[nth], &lo, &hi);
            err = align_collectives(a, nth++, r, es, lo, hi);
        }
        epochs_free(es);
    }
    reader_close(r);
    return more < 0 ? -ENOMEM : err;
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

static int read_collectives(struct align *a, const struct inputs *in, const size_t *first,
                            const struct part *p, int (*tick)(void *ctx, double part), void *ctx) {
    int err = 0;

    for (size_t i = 0; !err && i < in->n; i++) {
        if (first[i + 1] > first[i])
            err = read_file(a, in->file[i].path, first[i], p);
        if (!err && tick && tick(ctx, 0))
            break;
    }
    return err;
}

struct align *align_inputs(const struct inputs *in, const uint8_t *left_out, size_t *first,
                           const struct when *since, const struct when *until,
                           int (*tick)(void *ctx, double part), void *ctx) {
    struct align *a = align_new();
    struct part p = {since, until, INT64_MAX, INT64_MIN};
    int err = a ? 0 : -ENOMEM;

    for (size_t i = 0; !err && i < in->n; i++) {
        first[i] = a->ntraces;
        if (!left_out[i])
            err = read_file(a, in->file[i].path, SIZE_MAX, NULL);
        if (!err && tick && tick(ctx, 0))
            break;
    }
    for (size_t i = 0; !err && i < a->ntraces; i++) {
        const struct trace_of *t = &a->trace[i];
        int64_t ahead = t->start_utc - (int64_t)t->start;
        if (t->last) {
            p.first = (int64_t)t->first + ahead < p.first ? (int64_t)t->first + ahead : p.first;
            p.last = (int64_t)t->last + ahead > p.last ? (int64_t)t->last + ahead : p.last;
        }
    }
    if (!err) {
        first[in->n] = a->ntraces;
        if (align_wanted(a) && (since->from || until->from))
            err = read_collectives(a, in, first, &p, tick, ctx);
        if (!err && align_wanted(a) && !all_have_matches(a)) {
            a->nmatches = 0;
            err = read_collectives(a, in, first, NULL, tick, ctx);
        }
    }
    if (err) {
        align_free(a);
        return NULL;
    }
    return a;
}
