/* SPDX-License-Identifier: Apache-2.0 */
#include "clock_fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BIN_POINTS 24
#define BIN_NS     10e9
#define AROUND     8    /* points compared on each side of a possible jump */
#define JUMP_NS    10e6 /* machines are not suspended for less; a delay of the network is no jump */
#define JUMP_PPM   500e-6 /* more than two oscillators can drift apart */
#define SLOPE_PPM  30e-6  /* a slope with a larger error than this is not used */
#define DEVIATION  1.4826 /* standard deviation over median absolute deviation */
#define OF_MEDIAN  1.2533 /* standard error of a median over that of a mean */

double clock_median(double *v, size_t n) {
    size_t lo = 0, hi = n - 1, k = n / 2;

    while (lo < hi) { /* quickselect */
        double pivot = v[(lo + hi) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            double t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        /* all up to j are <= the pivot, all after it >= */
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return v[k];
}

static int add_knot(struct clock_fit *f, size_t *cap, double x, double d) {
    if (f->n == *cap) {
        size_t more = *cap * 2 + 16;
        struct clock_point *p = realloc(f->knot, more * sizeof *p);
        if (!p)
            return -ENOMEM;
        f->knot = p;
        *cap = more;
    }
    int64_t at = (int64_t)x;
    if (f->n && at <= f->knot[f->n - 1].x)
        at = f->knot[f->n - 1].x + 1;
    f->knot[f->n++] = (struct clock_point){at, d};
    return 0;
}

/*
 * Returns the slope of points without a jump: the median of the slopes between each point of the first half and its counterpart in the
 * second half. *error: its standard error. When the slope is not known well enough, returns 0 with the error that two oscillators may
 * differ by.
 */
static double slope(const struct clock_point *p, size_t n, double *scratch, double *error) {
    size_t half = n / 2, k = 0;

    *error = SLOPE_PPM;

    for (size_t i = 0; i < half; i++) {
        double dx = (double)(p[i + n - half].x - p[i].x);
        if (dx > 0)
            scratch[k++] = (p[i + n - half].d - p[i].d) / dx;
    }
    if (k < 4)
        return 0;
    double s = clock_median(scratch, k);
    for (size_t i = 0, m = 0; i < half && m < k; i++) {
        double dx = (double)(p[i + n - half].x - p[i].x);
        if (dx > 0)
            scratch[m++] = fabs((p[i + n - half].d - p[i].d) / dx - s);
    }
    double e = OF_MEDIAN * DEVIATION * clock_median(scratch, k) / sqrt((double)k);
    if (e >= SLOPE_PPM || fabs(s) >= 10 * JUMP_PPM)
        return 0;
    *error = e;
    return s;
}

/*
 * Returns the slope with which the line goes on beyond an end: that of its last two knots, because an oscillator swings, but only where it
 * certainly differs from the slope of the whole. It is known less well, and the line may have to go far: for as long as a job hangs.
 * w: two standard errors of both knots.
 */
static double slope_beyond(const struct clock_point *k, double whole, const double *w) {
    double dx = (double)(k[1].x - k[0].x), own = (k[1].d - k[0].d) / dx;

    return fabs(own - whole) > 1.5 * hypot(w[0], w[1]) / dx ? own : whole;
}

/* Fits the points from one jump to the next. Their distances from the line are written to `residuals`. */
static int fit_segment(struct clock_fit *f, size_t *cap, const struct clock_point *p, size_t n,
                       double *scratch, double *residuals) {
    double error, s = slope(p, n, scratch, &error), span = (double)p[n - 1].x - (double)p[0].x;
    double width[2][2] = {
        {0}}; /* two standard errors of the two knots at each end, the outer one first */
    size_t bins = n / BIN_POINTS, first = f->n;

    if ((double)bins > span / BIN_NS)
        bins = (size_t)(span / BIN_NS);
    bins = bins ? bins : 1;
    for (size_t b = 0; b < bins; b++) {
        size_t from = n * b / bins, to = n * (b + 1) / bins, m = to - from;
        double x = 0;
        for (size_t i = from; i < to; i++)
            x += (double)(p[i].x - p[from].x) / (double)m;
        x += (double)p[from].x;
        for (size_t i = from; i < to; i++)
            scratch[i - from] = p[i].d - s * ((double)p[i].x - x);
        double d = clock_median(scratch, m);
        for (size_t i = from; i < to; i++)
            residuals[i] = scratch[i - from] = fabs(p[i].d - s * ((double)p[i].x - x) - d);
        double w = 2 * OF_MEDIAN * DEVIATION * clock_median(scratch, m) / sqrt((double)m);
        f->uncertainty = fmax(f->uncertainty, w);
        if (b < 2)
            width[0][b] = w;
        if (b + 2 >= bins)
            width[1][bins - 1 - b] = w;
        if (add_knot(f, cap, x, d) != 0)
            return -ENOMEM;
    }
    f->after = bins > 2 ? slope_beyond(f->knot + f->n - 2, s, width[1]) : s;
    if (first == 0)
        f->before = bins > 2 ? slope_beyond(f->knot, s, width[0]) : s;
    /* the line is least certain at its ends, where it extends beyond a knot: by the last two knots, or by the overall slope */
    for (int end = 0; end < 2; end++) {
        const struct clock_point *k = end ? f->knot + f->n - 1 : f->knot + first;
        double beyond = fabs((double)(p[end ? n - 1 : 0].x - k->x)), *w = width[end];
        double share = bins > 2 ? beyond / fabs((double)(k->x - k[end ? -1 : 1].x)) : 0;
        f->uncertainty = fmax(f->uncertainty, bins > 2 ? hypot(w[0] * (1 + share), w[1] * share)
                                                       : hypot(w[0], 2 * error * beyond));
    }
    return 0;
}

/* Returns the median of n points; *around: their median distance from it. */
static double middle(const struct clock_point *p, size_t n, double *scratch, double *around) {
    for (size_t k = 0; k < n; k++)
        scratch[k] = p[k].d;
    double m = clock_median(scratch, n);
    for (size_t k = 0; k < n; k++)
        scratch[k] = fabs(p[k].d - m);
    *around = clock_median(scratch, n);
    return m;
}

/* Returns how far the points from i on lie from those before, when this is neither drift nor noise; else 0. */
static double jump_at(const struct clock_point *p, size_t n, size_t i, double *scratch) {
    size_t left = i < AROUND ? i : AROUND, right = n - i < AROUND ? n - i : AROUND;
    double a, b;

    if (left < AROUND / 2 || right < AROUND / 2)
        return 0;
    double d = -middle(p + i - left, left, scratch, &a);
    d += middle(p + i, right, scratch, &b);
    double least = JUMP_NS + JUMP_PPM * (double)(p[i + right - 1].x - p[i - left].x);
    return fabs(d) > least && fabs(d) > 8 * (a + b) ? d : 0;
}

/* Returns where between two points the clock jumped. The machine that wakes up first shows the jump, so it is just before that. */
static double place(int64_t lo, int64_t hi, const struct clock_gap *gaps, size_t ngaps) {
    for (size_t i = 0; i < ngaps; i++) {
        if (gaps[i].hi <= lo || gaps[i].lo >= hi)
            continue;
        if (gaps[i].hi < hi)
            return (double)gaps[i].hi - 2;
        lo = gaps[i].lo > lo ? gaps[i].lo : lo;
        break;
    }
    return ((double)lo + (double)hi) / 2;
}

int clock_fit(struct clock_fit *f, const struct clock_point *p, size_t n,
              const struct clock_gap *gaps, size_t ngaps) {
    double *scratch = malloc((n < 2 * AROUND ? 2 * AROUND : n) * sizeof *scratch),
           *residuals = malloc(n * sizeof *residuals);
    size_t cap = 0, from = 0;
    int err = scratch && residuals ? 0 : -ENOMEM;

    memset(f, 0, sizeof *f);
    for (size_t i = 1; !err && i <= n; i++) {
        size_t at = i, last = f->n;
        double after = f->after;
        if (i < n) {
            if (jump_at(p, n, i, scratch) == 0)
                continue;
            /* of the neighbouring places that look like a jump, take the one where the points really jump */
            for (; i + 1 < n && jump_at(p, n, i + 1, scratch) != 0; i++)
                if (fabs(p[i + 1].d - p[i].d) > fabs(p[at].d - p[at - 1].d))
                    at = i + 1;
        }
        if (at <= from)
            continue;
        /* the first knots of this segment come after the place of the jump, which needs their slope */
        err = fit_segment(f, &cap, p + from, at - from, scratch, residuals + from);
        if (!err && last) {
            double x = place(p[from - 1].x, p[from].x, gaps, ngaps);
            struct clock_point a = f->knot[last - 1], b = f->knot[last];
            double s = f->n > last + 1
                           ? (f->knot[last + 1].d - b.d) / (double)(f->knot[last + 1].x - b.x)
                           : f->after;
            struct clock_point two[2] = {{(int64_t)x, a.d + after * (x - (double)a.x)},
                                         {(int64_t)x + 1, b.d + s * (x - (double)b.x)}};
            err = add_knot(f, &cap, 0, 0);
            err = err ? err : add_knot(f, &cap, 0, 0);
            if (!err) {
                memmove(f->knot + last + 2, f->knot + last, (f->n - last - 2) * sizeof *f->knot);
                memcpy(f->knot + last, two, sizeof two);
            }
        }
        from = at;
    }
    if (!err)
        f->residual = clock_median(residuals, n);
    free(scratch);
    free(residuals);
    if (err)
        clock_fit_free(f);
    return err;
}

double clock_fit_at(const struct clock_fit *f, int64_t x) {
    size_t lo = 0, hi = f->n; /* find the first knot after x */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (f->knot[mid].x > x)
            hi = mid;
        else
            lo = mid + 1;
    }
    if (lo == 0)
        return f->knot[0].d + f->before * (double)(x - f->knot[0].x);
    const struct clock_point *a = &f->knot[lo - 1];
    if (lo == f->n)
        return a->d + f->after * (double)(x - a->x);
    return a->d + (f->knot[lo].d - a->d) * (double)(x - a->x) / (double)(f->knot[lo].x - a->x);
}

void clock_fit_free(struct clock_fit *f) {
    free(f->knot);
    f->knot = NULL;
    f->n = 0;
}
