/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of torch_call: each is there once, in whatever order calls end, and in the order of ids while few enough wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "converter/torch_pipe.h"
#include "converter/torch_rows.h"

#define BASE (7ll << 40)

static sqlite3 *db;

static int open_db(void **state) {
    (void)state;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    return sqlite3_exec(
        db,
        "CREATE TABLE torch_call(id INTEGER PRIMARY KEY, ts, duration, thread, stage, module, call, parent,"
        " depth, flags, step, seq, call_tid);"
        "CREATE TABLE came(n INTEGER PRIMARY KEY, id);"
        "CREATE TRIGGER t AFTER INSERT ON torch_call BEGIN INSERT INTO came(id) VALUES(new.id); END",
        NULL, NULL, NULL);
}

static int close_db(void **state) {
    (void)state;
    return sqlite3_close(db);
}

static int64_t number(const char *sql) {
    sqlite3_stmt *st;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static void put(struct torch_rows *t, int64_t id) {
    const struct torch_row r = {.id = id, .ts = id - BASE, .thread = BASE + 1, .seq = 3};

    assert_int_equal(torch_rows_put(t, &r), SQLITE_OK);
}

/* Makes a tree of calls, as they begin and end: 5 within each, 4 levels deep. */
static void call(struct torch_rows *t, int depth) {
    int64_t id = torch_rows_begin(t);

    for (int i = 0; i < 5 && depth < 4; i++)
        call(t, depth + 1);
    if ((id - BASE) % 7 == 0)
        assert_int_equal(torch_rows_leave_out(t, id), SQLITE_OK);
    else
        put(t, id);
}

static void test_calls_within_calls_come_in_order(void **state) {
    struct torch_rows t;

    (void)state;
    assert_int_equal(torch_rows_start(&t, db, NULL, BASE, 0), SQLITE_OK);
    for (int i = 0; i < 40; i++)
        call(&t, 0);
    int64_t n = t.begun;
    assert_int_equal(n, 40 * (1 + 5 + 25 + 125 + 625));
    assert_int_equal(torch_rows_end(&t), SQLITE_OK);
    assert_int_equal(number("SELECT count(*) FROM torch_call"), n - n / 7);
    assert_int_equal(number("SELECT count(*) FROM torch_call WHERE ts % 7 = 0"), 0);
    assert_int_equal(number("SELECT count(*) FROM torch_call WHERE id - ts <> 7 << 40"), 0);
    assert_int_equal(
        number("SELECT count(*) FROM came a JOIN came b ON b.n = a.n + 1 WHERE b.id < a.id"), 0);
    /* A field of 0 is not known, and neither is the time of a call whose end was not seen. */
    assert_int_equal(
        number("SELECT count(*) FROM torch_call WHERE duration IS NOT NULL OR parent IS NOT NULL OR"
               " step IS NOT NULL OR seq <> 3"),
        0);
}

static void test_one_that_does_not_end_holds_few_back(void **state) {
    struct torch_rows t;

    (void)state;
    assert_int_equal(torch_rows_start(&t, db, NULL, BASE, 0), SQLITE_OK);
    int64_t first = torch_rows_begin(&t), second = torch_rows_begin(&t);
    for (int i = 0; i < 3 * TORCH_ROWS_WAIT; i++)
        put(&t, torch_rows_begin(&t));
    assert_true(number("SELECT count(*) FROM torch_call") >= 2 * TORCH_ROWS_WAIT);
    put(&t, second);
    put(&t, first);
    int64_t last = torch_rows_begin(&t); /* never ends: no row */
    assert_int_equal(last, BASE + 3 * TORCH_ROWS_WAIT + 3);
    assert_int_equal(torch_rows_end(&t), SQLITE_OK);
    assert_int_equal(number("SELECT count(*) FROM torch_call"), 3 * TORCH_ROWS_WAIT + 2);
    assert_int_equal(
        number("SELECT count(*) FROM came a JOIN came b ON b.n = a.n + 1 WHERE b.id < a.id"), 2);
}

static void test_what_sqlite_refuses_is_told(void **state) {
    struct torch_rows t;

    (void)state;
    assert_int_equal(torch_rows_start(&t, db, NULL, BASE, 0), SQLITE_OK);
    put(&t, torch_rows_begin(&t));
    assert_int_equal(torch_rows_end(&t), SQLITE_OK);
    assert_int_equal(torch_rows_start(&t, db, NULL, BASE, 0), SQLITE_OK);
    const struct torch_row again = {.id = torch_rows_begin(&t)};
    int rc = torch_rows_put(&t, &again);
    assert_int_equal(rc & 0xff, SQLITE_CONSTRAINT);
    assert_int_equal(torch_rows_begin(&t), 0);
    assert_int_equal(torch_rows_end(&t) & 0xff, SQLITE_CONSTRAINT);
}

/* One call is open all the time, and each seventh is left out. */
static int make(void *ctx, struct torch_pipe *p) {
    struct torch_rows t;
    int rc = torch_rows_start(&t, p ? NULL : db, p, BASE, *(int *)ctx);
    struct torch_row r = {.seq = 3}, late = {.id = torch_rows_begin(&t), .ts = -1};

    for (int i = 0; i < 3 * TORCH_ROWS_WAIT && rc == SQLITE_OK; i++) {
        r.id = torch_rows_begin(&t);
        r.ts = r.id - BASE;
        rc = r.id % 7 == 0 ? torch_rows_leave_out(&t, r.id) : torch_rows_put(&t, &r);
    }
    if (rc == SQLITE_OK)
        rc = torch_rows_put(&t, &late);
    int ended = torch_rows_end(&t);
    return rc == SQLITE_OK ? ended : rc;
}

static void compare_pipe(const char *before, const char *copy) {
    char sql[256];
    struct load_now now;
    int begun = 0;

    assert_int_equal(torch_pipe_register(db, &now), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, before, NULL, NULL, NULL), SQLITE_OK);
    for (int alone = 0; alone < 2; alone++) {
        struct load l = {.db = db, .alone = alone};
        now.load = &l;
        assert_int_equal(torch_pipe_run(&l, make, &begun), SQLITE_OK);
        snprintf(sql, sizeof sql,
                 "CREATE TABLE %s%d AS SELECT * FROM torch_call; DELETE FROM torch_call", copy,
                 alone);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, before, NULL, NULL, NULL), SQLITE_OK);
    }
    snprintf(sql, sizeof sql, "SELECT count(*) FROM (SELECT * FROM %s0 EXCEPT SELECT * FROM %s1)",
             copy, copy);
    assert_int_equal(number(sql), 0);
    snprintf(sql, sizeof sql, "SELECT (SELECT count(*) FROM %s0) - (SELECT count(*) FROM %s1)",
             copy, copy);
    assert_int_equal(number(sql), 0);
}

static void test_a_thread_of_their_own_makes_the_same_rows(void **state) {
    (void)state;
    compare_pipe("SELECT 1", "empty");
    assert_true(number("SELECT count(*) FROM empty0") > 2 * TORCH_ROWS_WAIT);
    assert_int_equal(number("SELECT count(*) FROM empty0 WHERE ts <> id - (7 << 40)"), 1);
    compare_pipe("INSERT INTO torch_call(id) VALUES(8 << 40 | 5), ((6 << 40) + 9)", "between");
    assert_int_equal(
        number("SELECT count(*) FROM (SELECT * FROM empty0 EXCEPT SELECT * FROM between0)"), 0);
}

/* An error that one thread gets is passed to the other, which then ends. */
static void test_what_is_refused_ends_both_threads(void **state) {
    struct load_now now;
    struct load l = {.db = db};
    int begun = 0;

    (void)state;
    now.load = &l;
    assert_int_equal(torch_pipe_register(db, &now), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "INSERT INTO torch_call(id) VALUES((7 << 40) + 600), (9 << 40)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(torch_pipe_run(&l, make, &begun) & 0xff, SQLITE_CONSTRAINT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_calls_within_calls_come_in_order, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_one_that_does_not_end_holds_few_back, open_db,
                                        close_db),
        cmocka_unit_test_setup_teardown(test_what_sqlite_refuses_is_told, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_a_thread_of_their_own_makes_the_same_rows, open_db,
                                        close_db),
        cmocka_unit_test_setup_teardown(test_what_is_refused_ends_both_threads, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
