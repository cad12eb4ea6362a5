/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock_fit.h - fits how one clock runs against another, from instants that both have recorded.
 *
 *     struct clock_fit f;
 *     clock_fit(&f, points, n, NULL, 0);  // points: sorted by x
 *     d = clock_fit_at(&f, x);            // the other clock shows x + d then
 *     clock_fit_free(&f);
 *
 * A point is an instant with the noise of a network in it: mostly small, sometimes huge. So the fit uses only medians: the points are
 * divided into bins (each of at least 24 points and 10 s), each bin gives a knot, and the line between knots is straight, which follows an
 * oscillator that drifts and swings. Where a clock jumps (a machine was suspended) one chain of knots ends and another begins. Pure;
 * returns -ENOMEM when there is no memory.
 */
#ifndef PROBING_CONVERTER_CLOCK_FIT_H
#define PROBING_CONVERTER_CLOCK_FIT_H

#include <stddef.h>
#include <stdint.h>

struct clock_point {
    int64_t x; /* ns of the clock that is fitted */
    double d;  /* reading of the other clock minus x */
};

struct clock_fit {
    struct clock_point *knot; /* ascending in x; two knots 1 ns apart mark a jump */
    size_t n;
    double before, after; /* slope before the first knot and after the last one, ns per ns */
    double residual;      /* median distance of a point from the line, in ns */
    double uncertainty;   /* two standard errors of the line in ns, at its least certain place */
};

/* A time somewhere in which the clock stood still, as known from another source. */
struct clock_gap {
    int64_t lo, hi;
};

/* n > 0. gaps are sorted by time; where a jump lies between two points, they narrow down its place. Returns 0 or -ENOMEM. */
int clock_fit(struct clock_fit *f, const struct clock_point *p, size_t n,
              const struct clock_gap *gaps, size_t ngaps);
double clock_fit_at(const struct clock_fit *f, int64_t x);
void clock_fit_free(struct clock_fit *f);
/* Returns the median of v[0 .. n), n > 0, and reorders v. */
double clock_median(double *v, size_t n);

#endif
