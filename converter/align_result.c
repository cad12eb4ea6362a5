/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_result.c - computes the mapping of each boot to UTC from its fit or its anchors, for align_solve() of align.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "align_inside.h"

/* Sorts a boot's anchors, thins them out, and finds out whether the machine was suspended. */
static void ready(struct boot *b) {
    size_t n = 0;

    if (b->nanchors)
        qsort(b->anchor, b->nanchors, sizeof *b->anchor, align_by_mono);
    for (size_t i = 0; i < b->nanchors; i++) {
        if (n && b->anchor[i].mono - b->anchor[n - 1].mono < ALIGN_APART && i + 1 < b->nanchors)
            continue;
        if (n && b->anchor[i].mono - b->anchor[n - 1].mono <= 0)
            continue;
        b->anchor[n++] = b->anchor[i];
    }
    b->nanchors = n;
    for (size_t i = 1; i < n; i++)
        b->suspended |= align_slept(&b->anchor[i - 1], &b->anchor[i]) != 0;
}

static int by_anchors(struct boot *b) {
    int err = 0;

    for (size_t i = 0; !err && i < b->nanchors; i++)
        err = clock_add(&b->map, (uint64_t)b->anchor[i].mono, (uint64_t)b->anchor[i].real, 0);
    b->out.method = b->nanchors ? ALIGN_ANCHORS : ALIGN_NONE;
    b->out.uncertainty = -1;
    clock_ready(&b->map);
    if (b->nanchors) {
        b->out.from = b->anchor[0].real;
        b->out.to = b->anchor[b->nanchors - 1].real;
    }
    return err;
}

/* Computes how far the boot's time of day is ahead of the reference's CLOCK_MONOTONIC. */
static int time_of_day(const struct boot *b, double *out) {
    double *v = malloc((b->nanchors + 1) * sizeof *v);

    if (!v)
        return -ENOMEM;
    /* relative to the first anchor, because a double has only 53 bits */
    for (size_t i = 0; i < b->nanchors; i++)
        v[i] = (double)(b->anchor[i].real - align_to_reference(b, b->anchor[i].mono) -
                        (b->anchor[0].real - align_to_reference(b, b->anchor[0].mono)));
    *out = clock_median(v, b->nanchors);
    free(v);
    return 0;
}

/* Makes the mapping of a fitted boot from its knots, with `utc` added. */
static int by_fit(struct boot *b, int64_t utc) {
    const int64_t far = 86400ll * 1000000000 * 30;
    const struct clock_fit *f = &b->fit;
    int64_t before = f->knot[0].x < far ? 0 : f->knot[0].x - far, after = f->knot[f->n - 1].x + far;
    int err =
        clock_add(&b->map, (uint64_t)before, (uint64_t)(align_to_reference(b, before) + utc), 0);

    for (size_t i = 0; !err && i < f->n; i++)
        err = clock_add(&b->map, (uint64_t)f->knot[i].x,
                        (uint64_t)(align_to_reference(b, f->knot[i].x) + utc), 0);
    if (!err)
        err =
            clock_add(&b->map, (uint64_t)after, (uint64_t)(align_to_reference(b, after) + utc), 0);
    clock_ready(&b->map);
    b->out.from += utc;
    b->out.to += utc;
    return err;
}

/* Computes how far the boot's time of day is ahead of a mapping of it. */
static int offset_from(const struct boot *b, struct clock_map *map, int64_t *out) {
    double *v = malloc((b->nanchors + 1) * sizeof *v);
    int64_t first =
        b->nanchors ? b->anchor[0].real - clock_utc(map, (uint64_t)b->anchor[0].mono) : 0;

    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < b->nanchors; i++)
        v[i] = (double)(b->anchor[i].real - clock_utc(map, (uint64_t)b->anchor[i].mono) - first);
    *out = first + (b->nanchors ? (int64_t)clock_median(v, b->nanchors) : 0);
    free(v);
    return 0;
}

/* For a group whose reference has a mapping in the database already: makes the mappings of the other boots from it. */
static int follow(struct align *a, unsigned group, struct boot *reference) {
    const int64_t far = 86400ll * 1000000000 * 30;
    int err = 0;

    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        if (b->out.group != group || b->fit.n == 0 || b->out.known)
            continue;
        int64_t x0 = b->fit.knot[0].x, x1 = b->fit.knot[b->fit.n - 1].x;
        for (size_t k = 0; !err && k < b->fit.n + 2; k++) {
            int64_t x = k == 0          ? (x0 < far ? 0 : x0 - far)
                        : k <= b->fit.n ? b->fit.knot[k - 1].x
                                        : x1 + far;
            int64_t y = align_to_reference(b, x);
            err = clock_add(&b->map, (uint64_t)x,
                            (uint64_t)clock_utc(&reference->given, (uint64_t)y), 0);
        }
        clock_ready(&b->map);
        if (!err)
            err = offset_from(b, &b->map, &b->out.offset);
        b->out.from = clock_utc(&reference->given, (uint64_t)b->out.from);
        b->out.to = clock_utc(&reference->given, (uint64_t)b->out.to);
    }
    return err;
}

/* Since the reference's oscillator is no better than others, lets the time of the group run at the median rate of its boots. */
static int use_middle_rate(struct align *a, unsigned group) {
    double *v = malloc((a->nboots + 1) * sizeof *v);
    const struct boot *reference = NULL;
    size_t n = 0;

    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < a->nboots; i++) {
        const struct boot *b = &a->boot[i];
        if (b->out.group != group)
            continue;
        v[n++] = b->out.drift;
        reference = b->out.reference ? b : reference;
    }
    double rate = n > 2 ? clock_median(v, n) : 0;
    int64_t y0 = reference ? reference->fit.knot[0].x : 0;
    for (size_t i = 0; reference && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        if (b->out.group != group)
            continue;
        for (size_t k = 0; k < b->fit.n; k++)
            b->fit.knot[k].d += rate * (double)(b->fit.knot[k].x + (int64_t)b->fit.knot[k].d - y0);
        b->fit.before += rate;
        b->fit.after += rate;
        b->out.drift -= rate;
        b->out.from += (int64_t)(rate * (double)(b->out.from - y0));
        b->out.to += (int64_t)(rate * (double)(b->out.to - y0));
    }
    free(v);
    return 0;
}

static int by_value(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return a < b ? -1 : a > b;
}

/* Takes the median of the times of day of a group's boots, and makes the mapping of each boot from it. */
static int solve_group(struct align *a, unsigned group, int64_t *offsets) {
    size_t n = 0;
    int err = 0;

    for (size_t i = 0; i < a->nboots; i++)
        if (a->boot[i].out.group == group && a->boot[i].out.reference && a->boot[i].given.n)
            return follow(a, group, &a->boot[i]);
    err = use_middle_rate(a, group);

    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        double more = 0;
        if (b->out.group != group || b->fit.n == 0 || b->nanchors == 0 || b->given.n)
            continue;
        err = time_of_day(b, &more);
        b->out.offset =
            b->anchor[0].real - align_to_reference(b, b->anchor[0].mono) + (int64_t)more;
        offsets[n++] = b->out.offset;
    }
    qsort(offsets, n, sizeof *offsets, by_value);
    int64_t utc = n ? offsets[(n - 1) / 2] : 0;
    if (n &&
        offsets[n / 2] - utc >
            ALIGN_WRONG) /* equally many say one as the other: a clock that was never set is in the past */
        utc = offsets[n / 2];
    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        if (b->out.group != group || b->fit.n == 0 ||
            b->given.n) /* the boots with `given` are handled by align_moves.c */
            continue;
        if (b->nanchors)
            b->out.offset -= utc;
        err = by_fit(b, utc);
    }
    return err;
}

/* Updates what is reported of boots that the database has and that were compared again: their mapping stays, but they have more matches. */
static int say_shared(struct align *a) {
    int err = 0;

    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i], *reference = NULL;
        if (b->out.known && b->given.n && b->fit.n)
            reference = align_reference_of(a, b->in);
        if (!reference)
            continue;
        b->out.from = clock_utc(&reference->given, (uint64_t)b->out.from);
        b->out.to = clock_utc(&reference->given, (uint64_t)b->out.to);
        b->out.shared = 1;
        err = offset_from(b, &b->given, &b->out.offset);
    }
    return err;
}

/* Sets the range of the boot's anchors; the knots of its mapping stand for the anchors that were read before. */
static void say_anchors(struct boot *b) {
    struct clock_map *m = &b->given;
    int64_t first = clock_utc(m, (uint64_t)b->anchor[0].mono),
            last = clock_utc(m, (uint64_t)b->anchor[b->nanchors - 1].mono);

    b->out.from = first < m->a[0].real ? first : m->a[0].real;
    b->out.to = last > m->a[m->n - 1].real ? last : m->a[m->n - 1].real;
    b->out.extended = 1;
}

/* Extends a mapping that has only anchors. Existing rows keep their times, because the mapping changes only after them. */
static int go_on(struct boot *b) {
    const struct clock_anchor *last = &b->given.a[b->given.n - 1];
    int64_t from = (int64_t)clock_mono(&b->given, b->until);
    int err = 0;

    if (b->out.method != ALIGN_ANCHORS || !b->nanchors || !b->until)
        return 0;
    from = from > last->mono ? from : last->mono;
    if (b->anchor[b->nanchors - 1].mono <= from)
        return 0;
    if (from > last->mono)
        err =
            clock_add(&b->given, (uint64_t)from, (uint64_t)clock_utc(&b->given, (uint64_t)from), 0);
    for (size_t i = 0; !err && i < b->nanchors; i++)
        if (b->anchor[i].mono > from)
            err = clock_add(&b->given, (uint64_t)b->anchor[i].mono, (uint64_t)b->anchor[i].real, 0);
    clock_ready(&b->given);
    return err;
}

int align_solve(struct align *a) {
    int64_t *offsets = malloc((a->nboots + 1) * sizeof *offsets);
    unsigned groups = a->groups;
    int err = offsets ? 0 : -ENOMEM;

    for (size_t i = 0; i < a->nboots; i++) {
        ready(&a->boot[i]);
        clock_ready(&a->boot[i].given);
    }
    if (!err && a->nboots > 1)
        err = align_fit(a);
    for (size_t i = 0; i < a->nboots; i++)
        groups = a->boot[i].out.group > groups ? a->boot[i].out.group : groups;
    for (unsigned g = 1; !err && g <= groups; g++)
        err = solve_group(a, g, offsets);
    if (!err)
        err = align_find_moves(a);
    if (!err)
        err = say_shared(a);
    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        if (b->given.n) { /* the database has rows with this mapping, so it stays */
            err = go_on(b);
            if (!err && b->out.method == ALIGN_ANCHORS && b->nanchors)
                say_anchors(b);
            clock_free(&b->map);
            b->map = b->given;
            memset(&b->given, 0, sizeof b->given);
        } else if (b->fit.n == 0) {
            if (!b->out.known)
                b->out.group = ++groups;
            err = by_anchors(b);
            b->out.extended = b->out.known && b->map.n; /* it had no mapping when it was added */
        }
        b->out.map = &b->map;
    }
    free(offsets);
    return err;
}
