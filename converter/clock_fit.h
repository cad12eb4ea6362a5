/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock_fit.h - how one clock runs against another, out of instants that both have seen.
 *
 *     struct clock_fit f;
 *     clock_fit(&f, points, n, NULL, 0);  // points: sorted by x
 *     d = clock_fit_at(&f, x);            // the other clock shows x + d then
 *     clock_fit_free(&f);
 *
 * A point is an instant with the noise of a network in it: mostly small, sometimes huge. So only medians are taken: the
 * points are cut into bins (of 24 points and 10 s at least), each bin gives a knot, and between knots time runs linearly, which
 * follows an oscillator that drifts and swings. Where a clock jumps (a machine was suspended) the knots end and begin anew.
 * Pure; no memory is -ENOMEM.
 */
#ifndef PROBING_CONVERTER_CLOCK_FIT_H
#define PROBING_CONVERTER_CLOCK_FIT_H

#include <stddef.h>
#include <stdint.h>

struct clock_point {
    int64_t x; /* ns of the clock that is fitted */
    double d;  /* the other clock's reading less x */
};

struct clock_fit {
    struct clock_point *knot; /* x ascends; two 1 ns apart: a jump */
    size_t n;
    double before, after; /* slope before the first knot and after the last, ns a ns */
    double residual;      /* median distance of a point from the line, ns */
    double uncertainty;   /* two standard errors of the line, ns, where it is known worst */
};

/* The clock stood still somewhere from lo to hi, as somebody else knows. */
struct clock_gap {
    int64_t lo, hi;
};

/* n > 0. gaps: by time; where a jump lies between two points, they say more closely where. 0 or -ENOMEM. */
int clock_fit(struct clock_fit *f, const struct clock_point *p, size_t n,
              const struct clock_gap *gaps, size_t ngaps);
double clock_fit_at(const struct clock_fit *f, int64_t x);
void clock_fit_free(struct clock_fit *f);
/* The median of v[0 .. n), which is put into another order. n > 0. */
double clock_median(double *v, size_t n);

#endif
