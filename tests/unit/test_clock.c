/* SPDX-License-Identifier: Apache-2.0 */
/* converter/clock.h: a trace's monotonic times as UTC, along anchors whose times are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "converter/clock.h"

#define S   1000000000ll
#define UTC (1760000000 * S)
enum { N = 4000 };

/* The clock runs well from 10 s on, 1 % too slow from 20 s, and is set forward by 5 s at 30 s. */
static void anchors(struct clock_map *m) {
    static const struct {
        int64_t mono, real;
        uint64_t bracket;
    } a[] = {{30 * S, UTC + 19900000000, 40},
             {10 * S, UTC, 30},
             {31 * S, UTC + 25900000000, 90},
             {20 * S, UTC + 10 * S, 50}};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) /* the other clock is read in the middle */
        assert_int_equal(
            clock_add(m, (uint64_t)a[i].mono - a[i].bracket / 2, (uint64_t)a[i].real, a[i].bracket),
            0);
    clock_ready(m);
}

static int64_t utc(struct clock_map *m, double seconds) {
    return clock_utc(m, (uint64_t)(seconds * 1e9)) - UTC;
}

static void between_anchors(void **state) {
    struct clock_map m = {0};

    (void)state;
    anchors(&m);
    assert_int_equal(m.n, 4);
    assert_int_equal(m.uncertainty, 90);
    for (int back = 0; back < 2; back++) { /* whichever segment was used last */
        assert_int_equal(utc(&m, 31), 25900000000);
        assert_int_equal(utc(&m, 10), 0);
        assert_int_equal(utc(&m, 20), 10 * S);
        assert_int_equal(utc(&m, 30), 19900000000);
        assert_int_equal(utc(&m, 29.99), 19890100000);
        assert_int_equal(utc(&m, 15), 5 * S);
        assert_int_equal(utc(&m, 25), 14950000000);
        assert_int_equal(utc(&m, 30.5), 22900000000);
        assert_int_equal(utc(&m, 4),
                         -6 * S); /* before and after them at the speed of the monotonic clock */
        assert_int_equal(utc(&m, 131), 125900000000);
    }
    clock_free(&m);
}

/* Of two anchors at one time one is used, and nothing is divided by zero. */
static void anchors_of_one_time(void **state) {
    struct clock_map m = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            clock_add(&m, (uint64_t)(10 + 10 * (i > 1)) * S, (uint64_t)(UTC + 10 * S * (i > 1)), 1),
            0);
    clock_ready(&m);
    assert_int_equal(m.n, 2);
    assert_int_equal(utc(&m, 10), 0);
    assert_int_equal(utc(&m, 12), 2 * S);
    assert_int_equal(utc(&m, 22), 12 * S);
    clock_free(&m);
    clock_ready(&m);
    assert_int_equal(clock_utc(&m, 17), 17); /* without anchors the time itself */
    uint64_t ts[] = {5, 3};
    int64_t out[] = {0, 0};
    clock_utc_many(&m, ts, out, 2);
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 3);
}

/* Many at a time are what each is alone, in whatever order they come; the nanosecond at which a segment ends belongs to the next one. */
static void many_at_a_time(void **state) {
    static uint64_t ts[N];
    static int64_t out[N];
    struct clock_map m = {0}, one = {0};

    (void)state;
    anchors(&m);
    anchors(&one);
    srand(11);
    for (size_t i = 0; i < N; i++)
        ts[i] = i < N / 2 ? (uint64_t)i * 20000000u : (uint64_t)(rand() % 40000) * 1000000u;
    clock_utc_many(&m, ts, out, N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(out[i], clock_utc(&one, ts[i]));
    clock_free(&m);
    clock_free(&one);
}

static void back_to_monotonic(void **state) {
    struct clock_map m = {0};

    (void)state;
    anchors(&m);
    for (double s = 1; s < 60; s += .75) {
        int64_t at = clock_utc(&m, (uint64_t)(s * 1e9));
        uint64_t mono = clock_mono(&m, at); /* the first that is as late */
        assert_true(clock_utc(&m, mono) >= at && clock_utc(&m, mono - 1) < at);
    }
    assert_int_equal(clock_mono(&m, UTC + 2 * S), 12 * S);
    clock_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_anchors),
        cmocka_unit_test(anchors_of_one_time),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(back_to_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
