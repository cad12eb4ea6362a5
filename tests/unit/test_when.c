/* SPDX-License-Identifier: Apache-2.0 */
/* converter/when.h: times, lengths of time and kinds of records as people write them. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/when.h"
#include "traces/records.h"

#define S 1000000000ll

/* 2026-11-22 13:05:00 UTC is 1795352700. */
static const struct {
    const char *text;
    int from;
    int64_t ns;
} times[] = {
    {"2026-11-22T13:05:00", WHEN_UTC, 1795352700 * S},
    {"2026-11-22 13:05:00", WHEN_UTC, 1795352700 * S},
    {"2026-11-22 13:05", WHEN_UTC, 1795352700 * S},
    {"2026-11-22", WHEN_UTC, 1795305600 * S},
    {"2026-11-22 13:05:00.25", WHEN_UTC, 1795352700 * S + 250000000},
    {"2026-11-22 13:05:00.1234567899", WHEN_UTC, 1795352700 * S + 123456789},
    {"2026-11-22T13:05:00Z", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T13:05:00 utc", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T13:05:00GMT", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T15:05:00+02:00", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T15:05:00+02", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T18:35:00 +0530", WHEN_UTC, 1795352700 * S},
    {"2026-11-22T09:35:00-03:30", WHEN_UTC, 1795352700 * S},
    {"2026-11-22 +01:00", WHEN_UTC, 1795302000 * S},
    {"1969-12-31 23:59:59.5", WHEN_UTC, -500000000},
    {"1500-01-01", WHEN_UTC, INT64_MIN},
    {"2400-01-01", WHEN_UTC, INT64_MAX},
    {"1763816700.5", WHEN_UTC, 1763816700 * S + 500000000},
    {"0", WHEN_UTC, 0},
    {"+90s", WHEN_AFTER_FIRST, 90 * S},
    {"+1.5", WHEN_AFTER_FIRST, 1500000000},
    {"-5min", WHEN_BEFORE_LAST, 300 * S},
    {"-.5h", WHEN_BEFORE_LAST, 1800 * S},
    {"2024-02-29", WHEN_UTC, 1709164800 * S},
    {"2026-02-29", WHEN_NOT, 0}, /* WHEN_NOT: no time */
    {"2026-02-30", WHEN_NOT, 0},
    {"2026-11-22T13:05:00+16:00", WHEN_NOT, 0},
    {"2026-11-22T13:05:00+01:60", WHEN_NOT, 0},
    {"2026-11-22T13:05:00+01:00x", WHEN_NOT, 0},
    {"2026-11-22T13:05:00 CET", WHEN_NOT, 0},
    {"2026-11-22T", WHEN_NOT, 0},
    {"2026-11-22T25:00", WHEN_NOT, 0},
    {"1763816700x", WHEN_NOT, 0},
    {"1763816700500", WHEN_NOT, 0}, /* milliseconds */
    {"9223372036", WHEN_NOT, 0},
    {"9223372035", WHEN_UTC, 9223372035 * S},
    {"yesterday", WHEN_NOT, 0},
    {"", WHEN_NOT, 0},
    {"+", WHEN_NOT, 0},
    {"--5s", WHEN_NOT, 0},
};

static void moments(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct when w = {0};
        int rc = when_parse(times[i].text, &w);
        if (rc != (times[i].from ? 0 : -EINVAL) ||
            (!rc && ((int)w.from != times[i].from || w.ns != times[i].ns)))
            fail_msg("'%s': rc %d, from %d, %lld ns", times[i].text, rc, (int)w.from,
                     (long long)w.ns);
    }
    double seconds;
    assert_int_equal(when_text("0001-01-01", &seconds), 0); /* any year */
    assert_true(seconds == -62135596800.);
    assert_int_equal(when_text("2026-11-22 13:05:00.25", &seconds), 0);
    assert_true(seconds == 1795352700.25);
    assert_int_equal(when_text("+5s", &seconds), -EINVAL);
}

static void lengths(void **state) {
    static const struct {
        const char *text;
        int64_t ns;
    } right[] = {{"5ns", 5},
                 {"5us", 5000},
                 {"5ms", 5000000},
                 {"5", 5 * S},
                 {"1.5 s", 3 * S / 2},
                 {"2sec", 2 * S},
                 {"1 second", S},
                 {"2 seconds", 2 * S},
                 {"2m", 120 * S},
                 {"2 min", 120 * S},
                 {"2mins", 120 * S},
                 {"1minute", 60 * S},
                 {"2minutes", 120 * S},
                 {"2h", 7200 * S},
                 {"1hour", 3600 * S},
                 {"2hours", 7200 * S},
                 {"1d", 86400 * S},
                 {"1day", 86400 * S},
                 {"2days", 172800 * S},
                 {"0", 0}};
    static const char *const wrong[] = {"",    "s",    "-5s",   "+5s", "5 parsecs",
                                        "5ss", "1e9d", "1e400", "nan", " 5"};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (when_duration(right[i].text, &ns) != 0 || ns != right[i].ns)
            fail_msg("'%s' is %lld ns", right[i].text, (long long)ns);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (when_duration(wrong[i], &ns) != -EINVAL)
            fail_msg("'%s' is %lld ns", wrong[i], (long long)ns);
}

static void within_a_recording(void **state) {
    (void)state;
    assert_int_equal(when_utc(&(struct when){WHEN_UTC, 7}, 100, 200), 7);
    assert_int_equal(when_utc(&(struct when){WHEN_AFTER_FIRST, 7}, 100, 200), 107);
    assert_int_equal(when_utc(&(struct when){WHEN_BEFORE_LAST, 7}, 100, 200), 193);
    assert_true(when_add(INT64_MAX - 1, 2) == INT64_MAX &&
                when_add(INT64_MIN + 1, -2) == INT64_MIN);
    assert_true(when_add(INT64_MAX, -1) == INT64_MAX - 1 && when_add(-1, 1) == 0);
    int64_t ns;
    assert_true(when_seconds(1795352700.25, &ns) == 0 && ns == 1795352700 * S + 250000000);
    assert_true(when_seconds(-1.5, &ns) == 0 && ns == -1500000000);
    assert_true(when_seconds(9.2e9, &ns) == -EDOM && when_seconds(-9.2e9, &ns) == -EDOM &&
                when_seconds(NAN, &ns) == -EDOM);
}

static void kinds(void **state) {
    uint64_t types;
    char bad[32] = "";

    (void)state;
    assert_int_equal(when_kinds("torch,comm", &types, bad), 0);
    assert_true(types == (1ull << TRACE_torch_calls | 1ull << TRACE_torch_cuda |
                          1ull << TRACE_torch_memory | 1ull << TRACE_comm));
    assert_int_equal(when_kinds("samples,metrics,program,variables,triggers", &types, bad), 0);
    assert_int_equal(__builtin_popcountll(types), 13);
    assert_int_equal(when_kinds("sample", &types, bad), -EINVAL);
    assert_string_equal(bad, "sample");
    assert_int_equal(when_kinds("comm,", &types, bad), -EINVAL);
    assert_string_equal(bad, "");
    assert_int_equal(when_kinds("comm,a_word_that_is_longer_than_the_place_for_it", &types, bad),
                     -EINVAL);
    assert_string_equal(bad, "a_word_that_is_longer_than_the_");
    assert_true(when_is_column("timestamp") && when_is_column("last_enter") &&
                !when_is_column("duration"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(moments), cmocka_unit_test(lengths),
                                       cmocka_unit_test(within_a_recording),
                                       cmocka_unit_test(kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
