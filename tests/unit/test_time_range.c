/* SPDX-License-Identifier: Apache-2.0 */
/* time_range.h: which texts of SQL name a range of time, and which one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/time_range.h"

#define SECOND 1000000000ll
#define NOW    "now() - interval('5 min')"

/* Expects the range to begin at `from`, within a millisecond, and to end at `until`. seconds: since 1970, or before the end of the traces. */
static void expect(const char *sql, int from, double seconds, int until, double until_seconds) {
    struct when since, to;

    int has_long_rows = strstr(sql, "steps") != NULL;
    int found = time_range_of(sql, &since, &to);
    if (!found)
        fail_msg("no range: %s", sql);
    assert_int_equal(found, has_long_rows && until != WHEN_NOT ? TIME_RANGE_CHECK : 1);
    assert_int_equal(since.from, from);
    assert_true(llabs(since.ns - (long long)(seconds * SECOND)) < SECOND / 1000);
    assert_int_equal(to.from, until);
    if (until != WHEN_NOT)
        assert_true(llabs(to.ns - (long long)(until_seconds * SECOND)) < SECOND / 1000);
}

static void a_range(void **state) {
    (void)state;
    expect("SELECT func, sum(seconds) FROM samples WHERE timestamp > " NOW " GROUP BY 1",
           WHEN_BEFORE_LAST, 301, WHEN_NOT, 0);
    expect("SELECT count(*) FROM python.backtrace WHERE " NOW " <= timestamp AND rank = 3",
           WHEN_BEFORE_LAST, 301, WHEN_NOT, 0);
    expect("-- why\nSELECT * FROM samples WHERE timestamp BETWEEN 1760000000 AND 1760000010.5;",
           WHEN_UTC, 1759999999, WHEN_UTC, 1760000011.5);
    expect("SELECT * FROM samples WHERE timestamp >= now() - 60 AND timestamp < now() - 30",
           WHEN_BEFORE_LAST, 61, WHEN_BEFORE_LAST, 29);
    expect("SELECT * FROM samples WHERE timestamp > to_timestamp('2026-11-30T06:00:00Z')", WHEN_UTC,
           1796018399, WHEN_NOT, 0);
    expect("SELECT * FROM steps WHERE timestamp BETWEEN 1760000000 AND 1760000010", WHEN_UTC,
           1759999990, WHEN_UTC, 1760000020);
    /* Whether its steps end in this range can only be looked up when the end of the traces is known. */
    expect("SELECT * FROM steps WHERE timestamp BETWEEN now() - 60 AND now() - 30",
           WHEN_BEFORE_LAST, 70, WHEN_NOT, 0);
    expect(
        "SELECT timestamp FROM samples WHERE timestamp BETWEEN 1760000100 AND 1760000200 UNION ALL"
        " SELECT timestamp FROM steps WHERE timestamp BETWEEN 1760000000 AND 1760000010",
        WHEN_UTC, 1759999990, WHEN_UTC, 1760000201);
    expect("WITH late AS (SELECT * FROM torch_trace WHERE timestamp > now() - 20)"
           " SELECT module, sum(duration) FROM late GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
           WHEN_BEFORE_LAST, 30, WHEN_NOT, 0);
    expect("SELECT * FROM (SELECT timestamp AS t, op FROM comm_metrics) WHERE t > now() - 20",
           WHEN_BEFORE_LAST, 30, WHEN_NOT, 0);
    /* several: the widest */
    expect("SELECT max(timestamp) FROM samples WHERE timestamp > now() - 20;"
           "SELECT count(*) FROM profiling_data WHERE timestamp > now() - 5",
           WHEN_BEFORE_LAST, 21, WHEN_NOT, 0);
    expect("SELECT timestamp FROM samples WHERE timestamp > now() - 20 UNION ALL"
           " SELECT timestamp FROM steps WHERE timestamp > now() - 60",
           WHEN_BEFORE_LAST, 70, WHEN_NOT, 0);
    expect("SELECT * FROM samples WHERE timestamp > now() + 60", WHEN_BEFORE_LAST, 0, WHEN_NOT, 0);
}

static void all_of_the_time(void **state) {
    static const char *const sql[] = {
        "SELECT count(*) FROM samples",
        "SELECT 1",
        "",
        "SELECT * FROM samples WHERE timestamp < now() - 5",
        "SELECT * FROM samples WHERE timestamp > '2026-11-30'",
        "SELECT * FROM samples WHERE timestamp > NULL",
        "SELECT * FROM samples WHERE timestamp > date_trunc('hour', now())",
        "SELECT * FROM samples WHERE timestamp > now() / 2",
        "SELECT * FROM samples WHERE timestamp > now() - 5 OR rank = 3",
        "SELECT * FROM samples WHERE NOT timestamp > now() - 5",
        "SELECT * FROM samples WHERE timestamp > (SELECT max(timestamp) - 5 FROM samples)",
        "SELECT * FROM samples WHERE timestamp > now() - 5 AND rank IN (SELECT rank FROM steps)",
        "SELECT *, (SELECT count(*) FROM steps) FROM samples WHERE timestamp > now() - 5",
        "SELECT *, (SELECT count(*) FROM steps t WHERE t.timestamp > s.timestamp - 1) FROM samples s WHERE timestamp > now() - 5",
        "SELECT * FROM samples s JOIN steps t ON t.rank = s.rank WHERE s.timestamp > now() - 5",
        "SELECT * FROM samples s LEFT JOIN steps t ON t.rank = s.rank AND t.timestamp > s.timestamp - 1 WHERE s.timestamp > now() - 5",
        "SELECT *, lag(func) OVER (ORDER BY timestamp) AS before FROM samples ORDER BY timestamp DESC LIMIT 5",
        "SELECT * FROM (SELECT *, lag(func) OVER (ORDER BY tid) AS b FROM samples) WHERE timestamp > now() - 5",
        "SELECT * FROM samples WHERE timestamp > now() - 5; SELECT count(*) FROM steps",
        "SELECT * FROM spans WHERE timestamp > now() - 5",
        "SELECT * FROM trace WHERE start > now() - 5",
        "SELECT * FROM samples WHERE timestamp > now() - 5 AND trace_id = (SELECT max(id) FROM trace)",
        /* a lower bound that is clear, an upper one that is not */
        "SELECT * FROM samples WHERE timestamp > now() - 5 AND timestamp < date_trunc('hour', now())",
        /* a text that never ends */
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c CROSS JOIN samples WHERE timestamp > now() - 5",
        "EXPLAIN SELECT * FROM samples WHERE timestamp > now() - 5",
        "CREATE TEMP TABLE x AS SELECT * FROM samples WHERE timestamp > now() - 5",
        "SELECT * FROM samples WHERE timestamp > now() - 5 AND no_such_column = 3",
        "SELECT * FROM samples WHERE timestamp > ",
    };
    struct when since = {.from = WHEN_NOT}, until = {.from = WHEN_NOT};

    (void)state;
    for (size_t i = 0; i < sizeof sql / sizeof *sql; i++)
        if (time_range_of(sql[i], &since, &until) != 0 || since.from != WHEN_NOT ||
            until.from != WHEN_NOT)
            fail_msg("a range: %s", sql[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_range),
                                       cmocka_unit_test(all_of_the_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
