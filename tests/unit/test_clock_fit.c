/* SPDX-License-Identifier: Apache-2.0 */
/* converter/clock_fit.h with clocks whose true times are known, seen through a network: offset, drift, outliers, swings and jumps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/clock_fit.h"

#define S    1000000000.0
#define MOST 4000

static uint64_t seed, job; /* another job: other noise */

/* Returns 0 <= x < 1; the sequence is the same in each run. */
static double uniform(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

/* A clock and the network that it is seen through. */
struct truth {
    double offset, drift;  /* ns; ns a ns */
    double swing, period;  /* ns, s: a sine on top */
    double jump[3], at[3]; /* ns more from at[i] (s) on; at 0: none */
    double noise;          /* ns to each side */
    double outliers;       /* share of points that come up to 80 ms late */
};

static double at(const struct truth *t, double x) {
    double d = t->offset + t->drift * x;

    if (t->period > 0)
        d += t->swing * sin(2 * M_PI * x / S / t->period);
    for (int i = 0; i < 3; i++)
        d += t->at[i] > 0 && x >= t->at[i] * S ? t->jump[i] : 0;
    return d;
}

/* Makes n points from `from` seconds on, `apart` seconds from each other, give or take half of that. */
static size_t see(const struct truth *t, struct clock_point *p, size_t n, double from,
                  double apart) {
    seed = 88172645463325252u + job * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) {
        double x = floor((from + ((double)i + uniform() / 2) * apart) * S);
        p[i].x = (int64_t)x;
        p[i].d = at(t, x) + t->noise * (2 * uniform() - 1);
        if (uniform() < t->outliers)
            p[i].d += uniform() * 80e6;
    }
    return n;
}

/* Returns the largest error of the fit from x0 to x1 seconds, not counting the `around` seconds before and after a jump. */
static double worst(const struct clock_fit *f, const struct truth *t, double x0, double x1,
                    double around) {
    double most = 0;

    for (double s = x0; s < x1; s += (x1 - x0) / 1000) {
        int near = 0;
        for (int i = 0; i < 3; i++)
            near |= t->at[i] > 0 && fabs(s - t->at[i]) < around;
        double e = fabs(clock_fit_at(f, (int64_t)(s * S)) - at(t, floor(s * S)));
        most = !near && e > most ? e : most;
    }
    return most;
}

static void test_an_offset_is_exact(void **state) {
    (void)state;
    static const struct truth t = {.offset = -3723.5 * S};
    struct clock_point p[MOST];
    struct clock_fit f;

    for (size_t n = 1; n < 200; n += n < 30 ? 1 : 37) {
        assert_int_equal(clock_fit(&f, p, see(&t, p, n, 5000, 0.7), NULL, 0), 0);
        assert_true(worst(&f, &t, 0, 10000, 0) < 1e-3);
        /* of less than eight points no slope is known, and two clocks may drift apart */
        assert_true(f.residual < 1e-3);
        assert_true(f.uncertainty < (n < 8 ? 60e-6 * (double)(p[n - 1].x - p[0].x) : 0) + 1e-3);
        clock_fit_free(&f);
    }
}

static void test_drift_behind_noise_and_outliers(void **state) {
    (void)state;
    static const double drifts[] = {50e-6, -50e-6, 3e-6, 0};
    struct clock_point p[MOST];

    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++) {
        struct truth t = {.offset = 1.25 * S, .drift = drifts[i], .noise = 20e3, .outliers = 0.1};
        struct clock_fit f;
        assert_int_equal(clock_fit(&f, p, see(&t, p, 3000, 100, 0.2), NULL, 0), 0);
        /* An outlier counts as one point that is late: a tenth of outliers moves a median of even noise by a tenth of its width. A bin's median
         * has an error of its own, of which the fit's stated uncertainty is two, or three where the line continues beyond the last bin; the
         * worst of 60 bins may have four. */
        double most = 0.11 * t.noise + 1.4 * f.uncertainty;
        assert_true(worst(&f, &t, 100, 700, 0) < most);
        assert_true(f.uncertainty > 0 && f.uncertainty < t.noise);
        assert_true(f.residual > 0.3 * t.noise && f.residual < 0.8 * t.noise);
        /* nothing jumps: knots are bins */
        assert_true(f.n > 20);
        for (size_t k = 1; k < f.n; k++)
            assert_true(f.knot[k].x - f.knot[k - 1].x > 1000000);
        clock_fit_free(&f);
    }
}

static void test_the_uncertainty_holds(void **state) {
    (void)state;
    /* six seconds are one bin, whose slope is known badly; half a minute two; then more. From the first point to the last. */
    static const double seconds[] = {3, 6, 12, 29, 35, 61, 240};
    const struct truth t = {.offset = 0.7 * S, .drift = 50e-6, .noise = 20e3, .outliers = 0.01};
    struct clock_point p[MOST];

    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        size_t within = 0, all = 0;
        for (job = 0; job < 200; job++) {
            struct clock_fit f;
            size_t n = see(&t, p, (size_t)(seconds[i] / 0.1), 100, 0.1);
            assert_int_equal(clock_fit(&f, p, n, NULL, 0), 0);
            for (int k = 0; k <= 20; k++, all++) {
                int64_t x = p[0].x + (p[n - 1].x - p[0].x) / 20 * k;
                within += fabs(clock_fit_at(&f, x) - at(&t, (double)x)) <= f.uncertainty;
            }
            assert_true(f.uncertainty < 2 * t.noise);
            clock_fit_free(&f);
        }
        job = 0;
        if (within < all / 100 * 93)
            fail_msg("%.0f s: %zu of %zu", seconds[i], within, all);
    }
}

static void test_few_points_of_a_drifting_clock(void **state) {
    (void)state;
    const struct truth t = {.offset = 7e6, .drift = 40e-6, .noise = 3e3};
    struct clock_point p[MOST];
    struct clock_fit f;

    /* one bin: the slope holds before and after it. It is known to 4 standard errors: noise / sqrt(3) x 2.2 (two points, medians)
     * over half the span, by the root of 16 pairs. */
    assert_int_equal(clock_fit(&f, p, see(&t, p, 32, 50, 2), NULL, 0), 0);
    double slope = 4 * t.noise / sqrt(3) * 2.2 / (32 * S) / 4;
    assert_true(worst(&f, &t, 0, 164, 0) < 114 * S * slope + 3 * t.noise);
    assert_true(fabs(f.after - t.drift) < slope);
    clock_fit_free(&f);
    /* too few for a slope: level, at their median */
    assert_int_equal(clock_fit(&f, p, see(&t, p, 3, 50, 2), NULL, 0), 0);
    assert_true(f.n == 1 && f.before == 0 && f.after == 0);
    assert_true(fabs(clock_fit_at(&f, 0) - p[1].d) < 2 * t.drift * 2 * S + 2 * t.noise);
    clock_fit_free(&f);
}

static void test_points_at_one_instant(void **state) {
    (void)state;
    struct clock_point p[64];
    struct clock_fit f;

    for (size_t i = 0; i < 64; i++)
        p[i] = (struct clock_point){1000, 5 + (double)(i % 3)};
    assert_int_equal(clock_fit(&f, p, 64, NULL, 0), 0);
    assert_true(fabs(clock_fit_at(&f, 1000) - 6) <= 1);
    assert_true(fabs(clock_fit_at(&f, INT64_C(5000000000)) - 6) <= 1);
    clock_fit_free(&f);
}

static void test_an_oscillator_that_swings(void **state) {
    (void)state;
    /* 20 ppm to each side in five minutes: no line fits it, by milliseconds */
    const struct truth t = {.swing = 20e-6 * 300 * S / (2 * M_PI), .period = 300, .noise = 10e3};
    struct clock_point p[MOST];
    struct clock_fit f;

    assert_int_equal(clock_fit(&f, p, see(&t, p, 4000, 100, 0.25), NULL, 0), 0);
    /* Bins of 10 s or a little more: a straight line between two points of a sine is off by its curvature x length squared / 8; the slope within
     * a bin (over all bins: none) makes its median wrong by no more than that again; and there is noise. */
    double curve = t.swing * pow(2 * M_PI / 300, 2) * 11 * 11 / 8;
    assert_true(worst(&f, &t, 112, 1088, 0) < 2 * curve + 2 * f.uncertainty);
    assert_true(2 * curve + 2 * f.uncertainty < t.swing / 10);
    clock_fit_free(&f);
}

static void test_jumps(void **state) {
    (void)state;
    const struct truth t = {.offset = -40 * S,
                            .drift = -25e-6,
                            .jump = {30.5 * S, -12 * S, 3600 * S},
                            .at = {180, 300.25, 431},
                            .noise = 15e3,
                            .outliers = 0.05};
    static const struct clock_gap gaps[] = {{INT64_C(179000000000), INT64_C(180000000002)},
                                            {INT64_C(430500000000), INT64_C(431000000002)}};
    struct clock_point p[MOST];
    struct clock_fit f;

    /* two seconds between points: where in them it jumped is known to these, or to the gaps that somebody else has seen */
    assert_int_equal(clock_fit(&f, p, see(&t, p, 300, 20, 2), NULL, 0), 0);
    assert_true(worst(&f, &t, 20, 618, 3.5) < 0.06 * t.noise + 3 * f.uncertainty);
    clock_fit_free(&f);
    assert_int_equal(clock_fit(&f, p, 300, gaps, 2), 0);
    size_t jumps = 0;
    for (size_t k = 1; k < f.n; k++)
        if (f.knot[k].x - f.knot[k - 1].x == 1) {
            double size = f.knot[k].d - f.knot[k - 1].d, true_at = t.at[jumps] * S;
            assert_true(jumps < 3);
            assert_true(fabs(size - t.jump[jumps]) < 0.2 * t.noise + 4 * f.uncertainty);
            assert_true(fabs((double)f.knot[k].x - true_at) < (jumps == 1 ? 3.5 * S : 4));
            jumps++;
        }
    assert_int_equal(jumps, 3);
    clock_fit_free(&f);
}

static void test_what_a_network_does_is_no_jump(void **state) {
    (void)state;
    /* all that comes for five seconds comes 9 ms late, and single ones by much more */
    const struct truth t = {.offset = 2 * S, .drift = 10e-6, .noise = 5e3, .outliers = 0.15};
    struct clock_point p[MOST];
    struct clock_fit f;
    size_t n = see(&t, p, 1500, 10, 0.2);

    for (size_t i = 0; i < n; i++)
        if (p[i].x > 150 * S && p[i].x < 155 * S)
            p[i].d += 9e6;
    assert_int_equal(clock_fit(&f, p, n, NULL, 0), 0);
    for (size_t k = 1; k < f.n; k++)
        assert_true(f.knot[k].x - f.knot[k - 1].x > 1);
    assert_true(worst(&f, &t, 10, 140, 0) < 0.17 * t.noise + 3 * f.uncertainty);
    assert_true(worst(&f, &t, 10, 310, 0) < 9.1e6);
    clock_fit_free(&f);
}

/* Where the clock's zero is tells nothing: a machine that has been up for years fits as one that was just started. Numbers of such size lose half a microsecond. */
static void test_where_zero_is(void **state) {
    (void)state;
    static const struct truth cases[] = {
        {.offset = 5 * S, .drift = 30e-6, .noise = 20e3, .outliers = 0.05},
        {.swing = 1e6, .period = 300, .noise = 10e3},
        {.drift = -25e-6, .jump = {30.5 * S, -12 * S}, .at = {180, 300.25}, .noise = 15e3},
    };
    const int64_t origins[] = {INT64_C(-90000000000), INT64_C(100000000000000000)};
    const size_t numbers[] = {3, 30, 110, 400, 2000};
    struct clock_point p[MOST], q[MOST];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t m = 0; m < sizeof numbers / sizeof *numbers; m++)
            for (size_t k = 0; k < 2; k++) {
                struct clock_fit f, g;
                size_t n = see(&cases[i], p, numbers[m], 100, 0.25);
                for (size_t j = 0; j < n; j++)
                    q[j] = (struct clock_point){p[j].x + origins[k], p[j].d};
                assert_int_equal(clock_fit(&f, p, n, NULL, 0), 0);
                assert_int_equal(clock_fit(&g, q, n, NULL, 0), 0);
                assert_int_equal(f.n, g.n);
                assert_true(fabs(f.uncertainty - g.uncertainty) < 1);
                assert_true(fabs(f.residual - g.residual) < 1);
                for (double s = 0; s < 700; s += 7)
                    assert_true(fabs(clock_fit_at(&f, (int64_t)(s * S)) -
                                     clock_fit_at(&g, (int64_t)(s * S) + origins[k])) < 2);
                clock_fit_free(&f);
                clock_fit_free(&g);
            }
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

static void test_median(void **state) {
    (void)state;
    double v[300], sorted[300];

    seed = 2463534242u;
    for (size_t n = 1; n <= 300; n++) {
        size_t values = 1 + (size_t)(uniform() * 2 * (double)n); /* some, or all, are the same */
        for (size_t i = 0; i < n; i++)
            v[i] = floor(uniform() * (double)values) - 3;
        memcpy(sorted, v, n * sizeof *v);
        qsort(sorted, n, sizeof *sorted, by_value);
        assert_true(clock_median(v, n) == sorted[n / 2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_offset_is_exact),
        cmocka_unit_test(test_drift_behind_noise_and_outliers),
        cmocka_unit_test(test_the_uncertainty_holds),
        cmocka_unit_test(test_few_points_of_a_drifting_clock),
        cmocka_unit_test(test_points_at_one_instant),
        cmocka_unit_test(test_an_oscillator_that_swings),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_what_a_network_does_is_no_jump),
        cmocka_unit_test(test_where_zero_is),
        cmocka_unit_test(test_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
