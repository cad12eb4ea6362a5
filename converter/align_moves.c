/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_moves.c - for machines in a database that could not be compared before, when new traces show how their clocks relate. Declared in
 * align.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "align_inside.h"

#define FAR (86400ll * 1000000000 * 30)

/* Converts a CLOCK_MONOTONIC time of a boot to the time of the group that the boot was fitted to. */
static int64_t new_time(struct boot *b, struct boot *reference, int64_t mono) {
    return clock_utc(&reference->given, (uint64_t)align_to_reference(b, mono));
}

/* Makes the mapping from old to new times by one boot; it is exact at each knot of the boot's old and new mapping. */
static int mapping(struct boot *b, struct boot *reference, struct clock_map *out) {
    int64_t first = b->fit.knot[0].x, last = b->fit.knot[b->fit.n - 1].x;
    int err = 0;

    for (size_t k = 0; !err && k < b->given.n; k++)
        err = clock_add(out, (uint64_t)b->given.a[k].real,
                        (uint64_t)new_time(b, reference, b->given.a[k].mono), 0);
    for (size_t k = 0; !err && k < b->fit.n + 2; k++) {
        int64_t x = k == 0          ? (first < FAR ? 0 : first - FAR)
                    : k <= b->fit.n ? b->fit.knot[k - 1].x
                                    : last + FAR;
        err = clock_add(out, (uint64_t)clock_utc(&b->given, (uint64_t)x),
                        (uint64_t)new_time(b, reference, x), 0);
    }
    clock_ready(out);
    return err;
}

int align_moved(struct align_move *m, struct clock_map *was, struct clock_map *out) {
    int err = 0;

    memset(out, 0, sizeof *out);
    for (size_t k = 0; !err && k < was->n; k++)
        err = clock_add(out, (uint64_t)was->a[k].mono,
                        (uint64_t)clock_utc(&m->map, (uint64_t)was->a[k].real), 0);
    for (size_t k = 0; !err && k < m->map.n; k++) {
        uint64_t mono = clock_mono(was, m->map.a[k].mono);
        if (clock_utc(was, mono) == m->map.a[k].mono) /* false for times before the boot */
            err = clock_add(out, mono, (uint64_t)m->map.a[k].real, 0);
    }
    clock_ready(out);
    return err;
}

struct boot *align_reference_of(struct align *a, unsigned group) {
    for (size_t i = 0; i < a->nboots; i++)
        if (a->boot[i].out.reference && a->boot[i].in == group && a->boot[i].given.n)
            return &a->boot[i];
    return NULL;
}

/* Returns the boot that best tells where the group belongs: the one with the most matches; NULL: there is none. */
static struct boot *best_of(struct align *a, unsigned group) {
    struct boot *best = NULL;

    for (size_t i = 0; i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        if (b->out.known && b->given.n && b->fit.n && b->out.group == group && b->in != group &&
            (!best || b->out.matches > best->out.matches) && align_reference_of(a, b->in))
            best = b;
    }
    return best;
}

/* Gives the boots of the group that are in this alignment their new mapping. */
static int move_boots(struct align *a, struct align_move *m) {
    int err = 0;

    for (size_t i = 0; !err && i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        struct clock_map map;
        if (!b->given.n || b->out.group != m->from)
            continue;
        err = align_moved(m, &b->given, &map);
        clock_free(&b->given);
        b->given = map;
        b->out.group = m->to;
        b->out.reference = 0;
    }
    return err;
}

int align_find_moves(struct align *a) {
    int err = 0;

    for (unsigned g = 1; !err && g <= a->groups; g++) {
        struct boot *b = best_of(a, g);
        if (!b)
            continue;
        struct boot *reference = align_reference_of(a, b->in);
        struct align_move *list = realloc(a->move, (a->nmoves + 1) * sizeof *list);
        if (!list)
            return -ENOMEM;
        a->move = list;
        struct align_move *m = &list[a->nmoves++];
        *m = (struct align_move){.from = g, .to = b->in, .by = &b->out};
        err = mapping(b, reference, &m->map);
        if (!err)
            err = move_boots(a, m);
    }
    return err;
}

size_t align_moves(const struct align *a) {
    return a->nmoves;
}

struct align_move *align_move(const struct align *a, size_t i) {
    return &a->move[i];
}
