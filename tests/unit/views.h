/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views.h - a database of converter/schema in memory whose rows a test writes itself, so that every number that a view must say is known.
 *
 *     sqlite3 *db = made(0);
 *     run(db, "INSERT INTO note VALUES(K(1, 1), S(2.5), 0, 'part', 'text')");
 *     says(db, "SELECT timestamp, level FROM notes", "2.5,info");
 */
#ifndef PROBING_TESTS_UNIT_VIEWS_H
#define PROBING_TESTS_UNIT_VIEWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "converter/sql_functions.h"
#include "converter/tables.h"

/* Three processes: trace 1 is rank 0, trace 2 rank 1, and the recording of rank 2 is in two files, traces 3 and 4. */
static const char traces[] =
    "INSERT INTO trace_file(id, file, host, boot_id, pid, ppid, rank, process_ts, start_ts, end_ts,"
    " program, run, command, python, agent, period_ns, periods, lost, complete, bytes, blocks,"
    " records, clock, clock_anchors, clock_group, attempt, first_id, last_id)"
    " SELECT column1, 'f' || column1, column2, 'boot ' || column2, column3, 1, column4, S(1), S(column5),"
    " S(column6), column7, 'r', 'train ' || column1, '3.11', '0.1', 10000000, 1, column1, 1, 0, 0, 0, 'none', 0, 1, 0,"
    " K(column1, 0), K(column1, 0xffffffffff)"
    " FROM (VALUES(1, 'a', 10, 0, 1, 9, NULL), (2, 'b', 20, 1, 1.5, 9, NULL), (3, 'c', 30, 2, 1, 10, 3),"
    " (4, 'c', 30, 2, 10, 20, 3))";

/* K(trace, n): the id of the trace's n-th row. */
static void row_id(sqlite3_context *c, int n, sqlite3_value **v) {
    (void)n;
    sqlite3_result_int64(c, sqlite3_value_int64(v[0]) << 40 | sqlite3_value_int64(v[1]));
}

/* S(seconds): in ns. */
static void in_ns(sqlite3_context *c, int n, sqlite3_value **v) {
    (void)n;
    if (sqlite3_value_type(v[0]) != SQLITE_NULL)
        sqlite3_result_int64(c, (int64_t)(sqlite3_value_double(v[0]) * 1e9 + .5));
}

static void run(sqlite3 *db, const char *sql) {
    char *error = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

/* A query's rows, each between blanks, their columns between commas; a NULL is nothing. */
static void says(sqlite3 *db, const char *sql, const char *expected) {
    sqlite3_stmt *st;
    char said[4096] = "";
    size_t at = 0;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW && at < sizeof said - 256)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *text = (const char *)sqlite3_column_text(st, i);
            at += (size_t)snprintf(said + at, sizeof said - at, "%s%.200s",
                                   i    ? ","
                                   : at ? " "
                                        : "",
                                   text ? text : "");
        }
    sqlite3_finalize(st);
    if (strcmp(said, expected) != 0)
        fail_msg("%s\n  says  %s\n  truth %s", sql, said, expected);
}

/* stored: as in the database of a conversion, where what views say of all rows is stored when they are there. */
static sqlite3 *made(int stored) {
    sqlite3 *db;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sql_functions_register(db), SQLITE_OK);
    assert_int_equal(stored ? tables_make(db) : tables_make_live(db, NULL), SQLITE_OK);
    sqlite3_create_function(db, "K", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, row_id, NULL,
                            NULL);
    sqlite3_create_function(db, "S", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, in_ns, NULL,
                            NULL);
    run(db, traces);
    return db;
}

#endif
