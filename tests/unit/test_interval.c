/* SPDX-License-Identifier: Apache-2.0 */
/* converter/interval.h: durations as people write them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/interval.h"

static const struct {
    const char *text;
    double months, seconds;
} right[] = {
    {"5", 0, -1}, /* -1: no interval */
    {"", 0, -1},
    {"  ", 0, -1},
    {"min", 0, -1},
    {"5 parsecs", 0, -1},
    {"5 ss", 0, -1},
    {"5 minx", 0, -1},
    {"5 min 3", 0, -1},
    {"5 mss", 0, -1},
    {"1 ns", 0, 1e-9},
    {"1us", 0, 1e-6},
    {"1ms", 0, 1e-3},
    {"2 nanoseconds", 0, 2e-9},
    {"2 Microseconds", 0, 2e-6},
    {"2 milliseconds", 0, 2e-3},
    {"1.5 s", 0, 1.5},
    {"2 SECS", 0, 2},
    {"5min", 0, 300},
    {" 5  m ", 0, 300},
    {"2 hours 30 minutes", 0, 9000},
    {"1 hr", 0, 3600},
    {"2 hrs", 0, 7200},
    {"1h", 0, 3600},
    {"2 days", 0, 172800},
    {"1d 1w", 0, 691200},
    {"1 month", 1, 0},
    {"2 quarters", 6, 0},
    {"3 years 2 days", 36, 172800},
    {"0.5 month", 0, 1296000},
    {"1.5 years 1 month", 1, 47304000},
    {"-1 month", -1, 0},
    {"-2 min", 0, -120},
    {"00:05:00", 0, 300},
    {"01:30", 0, 5400},
    {"1:00:05.5", 0, 3605.5},
    {"-01:30:05.5", 0, -5405.5},
    {"100:00", 0, 360000},
    {"1 day 01:30", 0, 91800},
    {"01:30:00 1 day 2 hours 3 minutes", 0, 99180}, /* the time is read, however much follows */
    {"01:30:30 1 s", 0, 5431},
    {"01:59:59", 0, 7199},
    {"01:60", 0, -1},
    {"01:30:60", 0, -1},
    {"01:", 0, -1},
    {":30", 0, -1},
    {"01:30:", 0, -1},
};

static void durations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        double months = -7, seconds = -7, all = -7;
        int rc = interval_split(right[i].text, strlen(right[i].text), &months, &seconds);
        assert_int_equal(interval_parse(right[i].text, strlen(right[i].text), &all), rc);
        if (right[i].seconds == -1) {
            if (rc != -EINVAL)
                fail_msg("'%s' is %g months and %g s", right[i].text, months, seconds);
            continue;
        }
        if (rc != 0 || months != right[i].months || seconds != right[i].seconds)
            fail_msg("'%s': rc %d, %g months, %.12g s", right[i].text, rc, months, seconds);
        /* where only seconds are asked for, a month has 30 days and a year 365 */
        double years = (double)((int)months / 12), rest = (double)((int)months % 12);
        if (strstr(right[i].text, "year"))
            assert_true(all == seconds + years * 31536000 + rest * 2592000);
        else
            assert_true(all == seconds + months * 2592000);
    }
}

/* A text ends where its length says, whatever follows. */
static void lengths(void **state) {
    double seconds;

    (void)state;
    assert_int_equal(interval_parse("5 min7", 5, &seconds), 0);
    assert_true(seconds == 300);
    assert_int_equal(interval_parse("57 s", 1, &seconds), -EINVAL);
    assert_int_equal(interval_parse("01:305", 5, &seconds), 0);
    assert_true(seconds == 5400);
    assert_true(interval_unit("minutes", 3) == 60 && interval_unit("minutes", 4) == 0);
    assert_true(interval_unit("month", 5) == 2592000 && interval_unit("QUARTER", 7) == 7776000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(durations), cmocka_unit_test(lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
