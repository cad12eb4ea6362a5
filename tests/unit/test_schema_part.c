/* SPDX-License-Identifier: Apache-2.0 */
/* converter/schema_part.h: the tables and views that an SQL text can refer to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/schema_part.h"
#include "converter/sql_functions.h"
#include "converter/tables.h"

#ifdef __SANITIZE_ADDRESS__ /* takes three times as long */
#define EVERY 5
#else
#define EVERY 1
#endif

static sqlite3 *made(const char *sql) {
    sqlite3 *db;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sql_functions_register(db), SQLITE_OK);
    assert_int_equal(tables_make_live(db, sql), SQLITE_OK);
    return db;
}

static int count(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* For each table and view alone, everything that it is made of is selected. */
static void test_each_name(void **state) {
    sqlite3 *all = made(NULL);
    sqlite3_stmt *names;
    int n = 0, i = 0, sum = 0,
        total = count(all, "SELECT count(*) FROM sqlite_master WHERE sql NOT NULL");

    (void)state;
    assert_true(total > 80);
    assert_int_equal(sqlite3_prepare_v2(all,
                                        "SELECT name FROM sqlite_master WHERE type <> 'index'"
                                        " AND name NOT LIKE 'sqlite%'",
                                        -1, &names, NULL),
                     SQLITE_OK);
    while (sqlite3_step(names) == SQLITE_ROW) {
        char sql[128];
        sqlite3_stmt *st = NULL;
        if (i++ % EVERY)
            continue;
        n++;
        snprintf(sql, sizeof sql, "select count(*) from \"%s\"", sqlite3_column_text(names, 0));
        sqlite3 *db = made(sql);
        if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
            fail_msg("%s: %s", sql, sqlite3_errmsg(db));
        sqlite3_finalize(st);
        sum += count(db, "SELECT count(*) FROM sqlite_master WHERE sql NOT NULL");
        sqlite3_close(db);
    }
    assert_true(n > 80 / EVERY && sum < n * total / 4); /* and not much more */
    sqlite3_finalize(names);
    sqlite3_close(all);
}

static void test_texts_about_all(void **state) {
    static const char *const texts[] = {"SELECT name FROM SQLite_Master", "PRAGMA table_list",
                                        "SELECT * FROM information_schema.tables",
                                        "SELECT * FROM Information_Schema.\"Columns\"",
                                        "SELECT replay('what_if')"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sqlite3 *db = made(texts[i]);
        assert_int_equal(count(db, "SELECT count(*) FROM sqlite_master WHERE name = 'hangs'"), 1);
        sqlite3_close(db);
    }
    sqlite3 *db = made("SELECT name, value FROM information_schema.df_settings");
    assert_int_equal(count(db, "SELECT count(*) FROM sqlite_master WHERE name = 'config'"), 1);
    assert_int_equal(count(db, "SELECT count(*) FROM sqlite_master WHERE name = 'hangs'"), 0);
    sqlite3_close(db);
}

static void test_statements(void **state) {
    static const char text[] =
        "-- about\n\nCREATE TABLE a(x TEXT DEFAULT ';', y); -- a; b\nCREATE INDEX a_x ON a(x);\n"
        "CREATE VIEW b AS SELECT 'it''s; -- no comment' AS s, \"x\" FROM a; CREATE TABLE c(x);\n"
        "DROP TABLE c;CREATE VIEW c AS SELECT 1 AS x FROM b -- the last, without its mark";
    struct schema_part p = {0};
    sqlite3 *db;
    size_t n;

    (void)state;
    assert_int_equal(schema_part_add(&p, text, sizeof text - 1), SQLITE_OK);
    schema_part_want(&p, "SELECT * FROM c", SCHEMA_VIEWS);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(schema_part_make(&p, db), SQLITE_OK);
    assert_int_equal(count(db, "SELECT count(*) FROM sqlite_master"), 4);
    assert_int_equal(count(db, "SELECT count(*) FROM c"), 0);
    schema_part_want(&p, NULL, SCHEMA_VIEWS);
    assert_int_equal(schema_part_missing(&p, db, &n), SQLITE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(sqlite3_exec(db, "DROP VIEW b", NULL, NULL, NULL), SQLITE_OK);
    schema_part_want(&p, "SELECT * FROM a", SCHEMA_VIEWS); /* is in nothing that it names */
    assert_int_equal(schema_part_missing(&p, db, &n), SQLITE_OK);
    assert_int_equal(n, 0);
    schema_part_want(&p, "SELECT * FROM [C]", SCHEMA_VIEWS);
    assert_int_equal(schema_part_missing(&p, db, &n), SQLITE_OK);
    assert_int_equal(n, 1);
    schema_part_free(&p);
    sqlite3_close(db);
}

/* Where samples have no stacks, view samples is another one: it gives the same, and joins nothing for it. */
static void test_samples_without_stacks(void **state) {
    static const char rows[] =
        "INSERT INTO trace_file(id, file, first_id, last_id, pid, rank, bytes, blocks, records, lost, complete, clock, clock_anchors, period_ns, periods, attempt)"
        " VALUES(1, 'a', 1 << 40, (2 << 40) - 1, 7, 3, 0, 0, 0, 0, 1, 'anchors', 1, 100, 1, 0),"
        " (2, 'b', 2 << 40, (3 << 40) - 1, 8, NULL, 0, 0, 0, 0, 1, 'anchors', 1, 50, 2, 0);"
        "INSERT INTO thread(id, trace, tid, name, samples, running, cpu_us) VALUES((1 << 40) + 1, 1, 70, 'main', 0, 0, 0), ((2 << 40) + 1, 2, 80, NULL, 0, 0, 0);"
        "INSERT INTO period VALUES(2, 0, 10), (2, 5000, 20);"
        "INSERT INTO sample VALUES((1 << 40) + 1, 1000, 1, NULL, 5, 2, 3), ((1 << 40) + 2, 2000, 1, NULL, 0, 1, 4),"
        " ((2 << 40) + 1, 4000, 1, NULL, 9, 3, 1), ((2 << 40) + 2, 6000, 1, NULL, 9, 1, 0)";
    static const char asked[] = "SELECT * FROM samples",
                      plan[] = "EXPLAIN QUERY PLAN SELECT count(*), sum(seconds) FROM samples";
    sqlite3_stmt *st[2];
    sqlite3 *db[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqlite3_open(":memory:", &db[i]), SQLITE_OK);
        assert_int_equal(tables_add_live(db[i], asked, i, NULL), SQLITE_OK);
        if (sqlite3_exec(db[i], rows, NULL, NULL, NULL) != SQLITE_OK)
            fail_msg("%s", sqlite3_errmsg(db[i]));
        assert_int_equal(sqlite3_prepare_v2(db[i], asked, -1, &st[i], NULL), SQLITE_OK);
    }
    for (int n = 0, row; n < 5; n++) {
        row = sqlite3_step(st[0]);
        assert_int_equal(row, n < 4 ? SQLITE_ROW : SQLITE_DONE);
        assert_int_equal(sqlite3_step(st[1]), row);
        assert_int_equal(sqlite3_column_count(st[0]), sqlite3_column_count(st[1]));
        for (int i = 0; row == SQLITE_ROW && i < sqlite3_column_count(st[0]); i++) {
            const char *a = (const char *)sqlite3_column_text(st[0], i),
                       *b = (const char *)sqlite3_column_text(st[1], i);
            assert_string_equal(sqlite3_column_name(st[0], i), sqlite3_column_name(st[1], i));
            assert_int_equal(sqlite3_column_type(st[0], i), sqlite3_column_type(st[1], i));
            assert_string_equal(a ? a : "NULL", b ? b : "NULL");
        }
    }
    int joins[2] = {0};
    for (int i = 0; i < 2; i++) {
        sqlite3_finalize(st[i]);
        assert_int_equal(sqlite3_prepare_v2(db[i], plan, -1, &st[i], NULL), SQLITE_OK);
        while (sqlite3_step(st[i]) == SQLITE_ROW) {
            const char *line = (const char *)sqlite3_column_text(st[i], 3);
            joins[i] += strstr(line, " h ") || strstr(line, " k ");
        }
        sqlite3_finalize(st[i]);
        sqlite3_close(db[i]);
    }
    assert_int_equal(joins[0], 2);
    assert_int_equal(joins[1], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_name),
        cmocka_unit_test(test_texts_about_all),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_samples_without_stacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
