/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of torch_call: each once, whatever the order in which calls end, and in the order of their ids while few enough wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>

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

/* A tree of calls, as they begin and end: 5 within each, 4 deep. */
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
    assert_int_equal(torch_rows_start(&t, db, BASE, 0), SQLITE_OK);
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
    /* What is 0 is not known, and neither is the time of a call that was not seen to end. */
    assert_int_equal(
        number("SELECT count(*) FROM torch_call WHERE duration IS NOT NULL OR parent IS NOT NULL OR"
               " step IS NOT NULL OR seq <> 3"),
        0);
}

static void test_one_that_does_not_end_holds_few_back(void **state) {
    struct torch_rows t;

    (void)state;
    assert_int_equal(torch_rows_start(&t, db, BASE, 0), SQLITE_OK);
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
    assert_int_equal(torch_rows_start(&t, db, BASE, 0), SQLITE_OK);
    put(&t, torch_rows_begin(&t));
    assert_int_equal(torch_rows_end(&t), SQLITE_OK);
    assert_int_equal(torch_rows_start(&t, db, BASE, 0), SQLITE_OK);
    const struct torch_row again = {.id = torch_rows_begin(&t)};
    int rc = torch_rows_put(&t, &again);
    for (int i = 1; i < TORCH_ROWS_MANY; i++) { /* they go in together */
        const struct torch_row r = {.id = torch_rows_begin(&t)};
        assert_int_equal(rc, SQLITE_OK);
        rc = torch_rows_put(&t, &r);
    }
    assert_int_equal(rc & 0xff, SQLITE_CONSTRAINT);
    assert_int_equal(torch_rows_begin(&t), 0);
    assert_int_equal(torch_rows_end(&t) & 0xff, SQLITE_CONSTRAINT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_calls_within_calls_come_in_order, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_one_that_does_not_end_holds_few_back, open_db,
                                        close_db),
        cmocka_unit_test_setup_teardown(test_what_sqlite_refuses_is_told, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
