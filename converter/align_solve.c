/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "align_inside.h"

/* matches: a boot with fewer waits until others have been fitted */
#define ENOUGH 8
/* maximum length of a window of messages, in which only the tightest bounds count */
#define WINDOW_NS    5000000000ll
#define WINDOW_LEAST 200000000ll
/* Matches are by chance (is_chance()) if the anchors contradict them by more than this, the median distance from the line is above this, and that of a
 * neighbour from its neighbour is below this share of it; 1.3 to 2.3 is noise */
#define CHANCE_OFF  1000000000ll
#define CHANCE_FAR  1e6
#define CHANCE_STEP 0.9

/* State of the solving: the matches by key, with at most one per boot and key, and the aligned time of each key. */
struct solving {
    struct align *a;
    struct match *m; /* sorted by key */
    size_t n;
    size_t *first;   /* for each match: the first match with the same key */
    int64_t *time;   /* for the first match of each key: its time on the reference's clock */
    uint32_t *by;    /* likewise: 1 + the boot that `time` was read from; 0: it is not known */
    size_t *of_boot; /* indices of matches, sorted by boot and time */
    size_t *start;   /* for each boot: where its matches begin in of_boot */
    size_t *order;   /* the boots by key, as the result must not depend on the order of the files */
    const struct boot *reference;
    int refused; /* 1: a boot's matches with the reference are by chance */
    struct clock_point *point;
};

static int by_key(const void *x, const void *y) {
    const struct match *a = x, *b = y;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->boot != b->boot)
        return a->boot < b->boot ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static unsigned sort_of(const struct match *m) {
    return (unsigned)m->key & MATCH_SORT;
}

/* Reduces the matches of one key and boot to their median, because the ranks of one boot leave together too. Drops keys that only one boot has. */
static void reduce(struct solving *s, struct match *m, size_t n) {
    size_t out = 0;

    if (n) /* else the array may be NULL */
        qsort(m, n, sizeof *m, by_key);
    for (size_t i = 0, end; i < n; i = end) {
        size_t first = out;
        for (end = i; end < n &&
                      (m[end].key & ~(uint64_t)MATCH_SORT) == (m[i].key & ~(uint64_t)MATCH_SORT);) {
            size_t k = end;
            while (k < n && m[k].key == m[end].key && m[k].boot == m[end].boot)
                k++;
            /* the median, because latecomers come very late */
            struct match one = m[end + (k - end - 1) / 2];
            m[out++] = one; /* out <= end: what is written over was read */
            end = k;
        }
        int others = 0;
        for (size_t k = first + 1; k < out; k++)
            others |= m[k].boot != m[first].boot;
        if (!others)
            out = first;
    }
    s->m = m;
    s->n = out;
}

static const struct match *sorting; /* for by_boot(), as qsort() passes no argument */

static int by_boot(const void *x, const void *y) {
    const struct match *a = &sorting[*(const size_t *)x], *b = &sorting[*(const size_t *)y];

    if (a->boot != b->boot)
        return a->boot < b->boot ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static const struct boot *ordering; /* for by_name() */

static int by_name(const void *x, const void *y) {
    return strcmp(ordering[*(const size_t *)x].out.key, ordering[*(const size_t *)y].out.key);
}

static int begin(struct solving *s, struct align *a) {
    s->a = a;
    reduce(s, a->match, a->nmatches);
    s->first = malloc((s->n + 1) * sizeof *s->first);
    s->time = malloc((s->n + 1) * sizeof *s->time);
    s->by = calloc(s->n + 1, sizeof *s->by);
    s->of_boot = malloc((s->n + 1) * sizeof *s->of_boot);
    s->start = calloc(a->nboots + 2, sizeof *s->start);
    s->order = malloc((a->nboots + 1) * sizeof *s->order);
    if (!s->first || !s->time || !s->by || !s->of_boot || !s->start || !s->order)
        return -ENOMEM;
    for (size_t b = 0; b < a->nboots; b++)
        s->order[b] = b;
    ordering = a->boot;
    qsort(s->order, a->nboots, sizeof *s->order, by_name);
    for (size_t i = 0; i < s->n; i++) {
        s->of_boot[i] = i;
        s->first[i] = i && s->m[i - 1].key == s->m[i].key ? s->first[i - 1] : i;
        s->start[s->m[i].boot + 1]++;
        a->boot[s->m[i].boot].seen++;
    }
    size_t most = 0;
    for (size_t b = 0; b < a->nboots; b++) {
        most = s->start[b + 1] > most ? s->start[b + 1] : most;
        s->start[b + 1] += s->start[b];
    }
    sorting = s->m;
    qsort(s->of_boot, s->n, s->n ? sizeof *s->of_boot : 1, by_boot);
    s->point = malloc((2 * most + 2) * sizeof *s->point);
    return s->point ? 0 : -ENOMEM;
}

/* Uses a fitted boot to give a time to all collectives that it took part in and that have none yet. */
static void give_times(struct solving *s, size_t boot) {
    const struct boot *b = &s->a->boot[boot];

    for (size_t k = s->start[boot]; k < s->start[boot + 1]; k++) {
        size_t i = s->of_boot[k], first = s->first[i];
        if (sort_of(&s->m[i]) != MATCH_EXIT || s->by[first])
            continue;
        s->time[first] = s->m[i].at + (int64_t)clock_fit_at(&b->fit, s->m[i].at);
        s->by[first] = (uint32_t)boot + 1;
    }
}

/* The boots that one is compared with are mapped onto the reference with an uncertainty of their own, which adds to that of the comparison: *inherited becomes the
 * largest of theirs. -1: that of one of them is not known. */
static void inherit(const struct boot *from, double *inherited) {
    if (*inherited >= 0 && (from->out.uncertainty < 0 || from->out.uncertainty > *inherited))
        *inherited = from->out.uncertainty;
}

/* Makes points of the boot's collectives whose time is known; returns their number. */
static size_t points_of(struct solving *s, size_t boot, double *inherited) {
    size_t n = 0;

    *inherited = 0;
    for (size_t k = s->start[boot]; k < s->start[boot + 1]; k++) {
        size_t i = s->of_boot[k], first = s->first[i];
        if (sort_of(&s->m[i]) != MATCH_EXIT || !s->by[first])
            continue;
        inherit(&s->a->boot[s->by[first] - 1], inherited);
        s->point[n++] = (struct clock_point){s->m[i].at, (double)(s->time[first] - s->m[i].at)};
    }
    return n;
}

/* Makes the boot's CLOCK_MONOTONIC the time of its group; where the machine was suspended, corrected by what BOOTTIME says. */
static int make_reference(struct boot *b, unsigned group) {
    size_t n = 0;
    int64_t slept = 0;

    b->fit.knot = calloc(2 * b->nanchors + 1, sizeof *b->fit.knot);
    if (!b->fit.knot)
        return -ENOMEM;
    b->fit.knot[n++].x = b->nanchors ? b->anchor[0].mono : 0;
    for (size_t i = 1; b->suspended && i < b->nanchors; i++) {
        const struct anchor *p = &b->anchor[i - 1], *q = &b->anchor[i];
        int64_t more = q->boottime - q->mono - (p->boottime - p->mono),
                at = p->mono + (q->mono - p->mono) / 2;
        if (more < 1000000 || at <= b->fit.knot[n - 1].x)
            continue;
        b->fit.knot[n++] = (struct clock_point){at, (double)slept};
        b->fit.knot[n++] = (struct clock_point){at + 1, (double)(slept += more)};
    }
    b->fit.n = n;
    b->out.reference = 1;
    b->out.group = b->in = group;
    b->out.method = ALIGN_COLLECTIVES;
    if (b->out.uncertainty < 0) /* the database had it with the mapping of its anchors */
        b->out.uncertainty = 0;
    return 0;
}

/* The drift over the longest time without a jump. */
static double drift_of(const struct clock_fit *f) {
    double longest = 0, d = f->after;

    for (size_t i = 0, end; i < f->n; i = end) {
        for (end = i + 1; end < f->n && f->knot[end].x - f->knot[end - 1].x > 1;)
            end++;
        double span = (double)(f->knot[end - 1].x - f->knot[i].x);
        if (span <= longest)
            continue;
        longest = span;
        d = (f->knot[end - 1].d - f->knot[i].d) / span;
    }
    return -d;
}

static int fitted(struct solving *s, size_t boot, const struct clock_point *p, size_t n,
                  enum align_method method, unsigned group) {
    struct boot *b = &s->a->boot[boot];
    struct clock_gap *gaps = calloc(b->nanchors + 1, sizeof *gaps);
    size_t ngaps = 0;
    int err = gaps ? 0 : -ENOMEM;

    for (size_t i = 1; gaps && i < b->nanchors; i++)
        if (align_slept(&b->anchor[i - 1], &b->anchor[i]))
            gaps[ngaps++] = (struct clock_gap){b->anchor[i - 1].mono, b->anchor[i].mono};
    if (!err)
        err = clock_fit(&b->fit, p, n, gaps, ngaps);
    free(gaps);
    if (err)
        return err;
    b->out.method = method;
    b->in = group;
    if (!b->given.n)
        b->out.group = group;
    b->out.matches = n;
    b->out.residual = b->fit.residual;
    b->out.uncertainty = n < 3 ? -1 : b->fit.uncertainty;
    b->out.drift = drift_of(&b->fit);
    b->out.from = p[0].x + (int64_t)clock_fit_at(&b->fit, p[0].x);
    b->out.to = p[n - 1].x + (int64_t)clock_fit_at(&b->fit, p[n - 1].x);
    return 0;
}

/*
 * Collectives of two starts of a job are counted alike, so where the traces that would tell the starts apart are missing, those of one start are
 * compared with those of another. Then the clocks contradict the anchors, and the distances from the line are not the noise of a network,
 * which is new for each collective: each step's difference adds to those before.
 */
static int is_chance(const struct solving *s, const struct boot *b, size_t n) {
    const struct boot *r = s->reference;
    double *v = n < ENOUGH || !b->nanchors || !r->nanchors ? NULL : malloc(n * sizeof *v), last = 0;

    if (!v)
        return 0;
    int64_t off = b->anchor[0].real - align_to_reference(b, b->anchor[0].mono) -
                  (r->anchor[0].real - align_to_reference(r, r->anchor[0].mono));
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(s->point[i].d - clock_fit_at(&b->fit, s->point[i].x));
    double far = clock_median(v, n);
    for (size_t i = 0; i < n; i++) {
        double d = s->point[i].d - clock_fit_at(&b->fit, s->point[i].x);
        v[i] = fabs(d - last);
        last = d;
    }
    double step = clock_median(v, n);
    free(v);
    return llabs(off) > CHANCE_OFF && far > CHANCE_FAR && step < CHANCE_STEP * far;
}

static void add_inherited(struct boot *b, double inherited) {
    b->out.uncertainty =
        b->out.uncertainty < 0 || inherited < 0 ? -1 : b->out.uncertainty + inherited;
}

/* Fits, in one round, those boots that are not fitted yet. Returns 1: some now are; 0; -ENOMEM. */
static int by_collectives(struct solving *s, unsigned group, size_t least) {
    uint8_t *now = calloc(s->a->nboots + 1, 1);
    int any = 0, err = now ? 0 : -ENOMEM;

    for (size_t k = 0; !err && k < s->a->nboots; k++) {
        size_t i = s->order[k];
        struct boot *b = &s->a->boot[i], was = *b;
        double inherited = 0;
        size_t n = b->fit.n || b->refused ? 0 : points_of(s, i, &inherited);
        if (n < least || n == 0)
            continue;
        err = fitted(s, i, s->point, n, ALIGN_COLLECTIVES, group);
        if (!err && is_chance(s, b, n)) {
            clock_fit_free(&b->fit);
            *b = was;
            b->refused = 1;
            s->refused = 1;
            continue;
        }
        add_inherited(b, inherited);
        any = now[i] = 1;
    }
    for (size_t k = 0; !err && k < s->a->nboots; k++)
        if (now[s->order[k]])
            give_times(s, s->order[k]);
    free(now);
    return err ? err : any;
}

/* ---- messages: each gives a bound from one side ---- */

struct bound {
    int64_t x;
    double d;
    int upper;
};

static size_t bounds_of(struct solving *s, size_t boot, unsigned group, struct bound *out,
                        double *inherited) {
    size_t n = 0;

    *inherited = 0;
    for (size_t k = s->start[boot]; k < s->start[boot + 1]; k++) {
        size_t i = s->of_boot[k];
        const struct match *m = &s->m[i];
        unsigned sort = sort_of(m);
        if (sort == MATCH_EXIT)
            continue;
        /* SENT and RECEIVED of a message are neighbours */
        uint64_t other =
            (m->key & ~(uint64_t)MATCH_SORT) | (sort == MATCH_SENT ? MATCH_RECEIVED : MATCH_SENT);
        size_t j = sort == MATCH_SENT ? i + 1 : i - 1;
        if (j >= s->n || s->m[j].key != other)
            continue;
        const struct boot *b = &s->a->boot[s->m[j].boot];
        if (b->fit.n == 0 || b->in != group)
            continue;
        int64_t y = s->m[j].at + (int64_t)clock_fit_at(&b->fit, s->m[j].at);
        inherit(b, inherited);
        out[n++] = (struct bound){m->at, (double)(y - m->at), sort == MATCH_SENT};
    }
    return n;
}

/* Makes a point of each window: the middle between its tightest bounds, corrected for a drift of `slope`. */
static size_t windows(const struct bound *b, size_t n, double slope, struct clock_point *out,
                      double *width) {
    size_t points = 0;
    /* a few dozen windows, so that a drift can be measured */
    int64_t window = n ? (b[n - 1].x - b[0].x) / 40 : 0;

    window = window > WINDOW_NS ? WINDOW_NS : window < WINDOW_LEAST ? WINDOW_LEAST : window;
    *width = 0;
    for (size_t i = 0, end; i < n; i = end) {
        double lo = -INFINITY, hi = INFINITY, x = (double)b[i].x + (double)window / 2;
        for (end = i; end < n && b[end].x - b[i].x < window; end++) {
            double d = b[end].d - slope * ((double)b[end].x - x);
            if (b[end].upper && d < hi)
                hi = d;
            if (!b[end].upper && d > lo)
                lo = d;
        }
        if (isinf(lo) || isinf(hi))
            continue;
        *width = fabs(hi - lo) / 2 > *width ? fabs(hi - lo) / 2 : *width;
        out[points++] = (struct clock_point){(int64_t)x, (lo + hi) / 2};
    }
    return points;
}

static int by_messages(struct solving *s, unsigned group) {
    struct bound *bounds = NULL;
    int any = 0, err = 0;

    for (size_t k = 0; !err && k < s->a->nboots; k++) {
        size_t b = s->order[k], most = s->start[b + 1] - s->start[b];
        if (s->a->boot[b].fit.n || s->a->boot[b].refused || most == 0)
            continue;
        struct bound *more = realloc(bounds, most * sizeof *bounds);
        struct clock_fit slope;
        double width = 0, inherited;
        if (!more) {
            err = -ENOMEM;
            break;
        }
        bounds = more;
        size_t n = bounds_of(s, b, group, bounds, &inherited),
               points = windows(bounds, n, 0, s->point, &width);
        if (points == 0)
            continue;
        err = clock_fit(&slope, s->point, points, NULL, 0);
        if (err)
            break;
        points = windows(bounds, n, -drift_of(&slope), s->point, &width);
        clock_fit_free(&slope);
        err = fitted(s, b, s->point, points, ALIGN_MESSAGES, group);
        s->a->boot[b].out.matches = n;
        s->a->boot[b].out.uncertainty = width;
        add_inherited(&s->a->boot[b], inherited);
        any = 1;
        if (!err)
            give_times(s, b);
    }
    free(bounds);
    return err ? err : any;
}

/* Chooses the best reference among the remaining boots: never suspended if possible, then with the most matches. */
static struct boot *next_reference(struct solving *s) {
    struct boot *best = NULL;

    for (size_t i = 0; i < s->a->nboots; i++) {
        struct boot *b = &s->a->boot[s->order[i]];
        if (b->fit.n || b->seen == 0)
            continue;
        if (best && (b->given.n > 0) != (best->given.n > 0)) {
            best = b->given.n ? b : best;
            continue;
        }
        if (!best || b->suspended < best->suspended ||
            (b->suspended == best->suspended && b->seen > best->seen))
            best = b;
    }
    return best;
}

int align_fit(struct align *a) {
    struct solving s = {0};
    struct boot *reference;
    unsigned group = a->groups;
    int err = begin(&s, a);

    while (!err && (reference = next_reference(&s))) {
        size_t boot = (size_t)(reference - a->boot);
        int any = 1;
        unsigned this = reference->given.n ? reference->out.group : ++group;
        struct align_boot was = reference->out;
        err = make_reference(reference, this);
        if (err)
            break;
        s.reference = reference;
        if (s.refused) { /* the times known so far are those of clocks that the rest has nothing in common with */
            memset(s.by, 0, (s.n + 1) * sizeof *s.by);
            for (size_t i = 0; i < a->nboots; i++)
                a->boot[i].refused = 0;
            s.refused = 0;
        }
        give_times(&s, boot);
        while (any > 0) {
            any = by_collectives(&s, this, ENOUGH);
            if (any == 0)
                any = by_collectives(&s, this, 1);
            if (any == 0)
                any = by_messages(&s, this);
        }
        err = any;
        size_t others = 0, collectives = 0;
        for (size_t i = 0; i < a->nboots; i++) {
            int in = a->boot[i].fit.n > 0 && a->boot[i].in == this;
            collectives +=
                in && &a->boot[i] != reference && a->boot[i].out.method == ALIGN_COLLECTIVES;
            others += in;
        }
        if (!collectives)
            reference->out.method = ALIGN_MESSAGES;
        if (others == 1) { /* what it shared has bound no other boot */
            clock_fit_free(&reference->fit);
            reference->seen = 0;
            reference->out.reference = 0;
            reference->out.method = was.method;
            reference->out.uncertainty = was.uncertainty;
            if (!reference->given.n) {
                reference->out.group = 0;
                group--;
            }
            continue;
        }
        /* its line is as good as what it was compared by */
        for (size_t i = s.start[boot]; i < s.start[boot + 1]; i++)
            reference->out.matches += s.by[s.first[s.of_boot[i]]] != 0;
        size_t last = s.start[boot + 1];
        if (last > s.start[boot]) {
            int64_t x0 = s.m[s.of_boot[s.start[boot]]].at, x1 = s.m[s.of_boot[last - 1]].at;
            reference->out.from = x0 + (int64_t)clock_fit_at(&reference->fit, x0);
            reference->out.to = x1 + (int64_t)clock_fit_at(&reference->fit, x1);
        }
    }
    free(s.first);
    free(s.time);
    free(s.by);
    free(s.of_boot);
    free(s.start);
    free(s.order);
    free(s.point);
    free(a->match);
    a->match = NULL;
    a->nmatches = a->matches_cap = 0;
    return err;
}
