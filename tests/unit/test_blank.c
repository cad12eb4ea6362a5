/* SPDX-License-Identifier: Apache-2.0 */
/* converter/blank.h: a database whose tables were made at once is the same as one whose tables SQLite made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "converter/blank.h"
#include "converter/tables.h"

static const char asked[] = "SELECT * FROM steps, hot_functions, training_logs, samples";

static char *text(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    char *out = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return out;
}

static int number(sqlite3 *db, const char *sql) {
    return tables_number(db, sql);
}

static void same(sqlite3 *a, sqlite3 *b, const char *sql) {
    char *x = text(a, sql), *y = text(b, sql);

    assert_true(strlen(x) > 1);
    assert_string_equal(x, y);
    sqlite3_free(x);
    sqlite3_free(y);
}

static sqlite3 *opened(void *image, size_t n) {
    sqlite3 *db;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    if (image)
        assert_int_equal(
            sqlite3_deserialize(db, "main", image, (sqlite3_int64)n, (sqlite3_int64)n,
                                SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE),
            SQLITE_OK);
    return db;
}

static void is_whole(sqlite3 *db) {
    char *said = text(db, "PRAGMA integrity_check");

    assert_string_equal(said, "ok");
    sqlite3_free(said);
}

/* Puts a row into each table. */
static void fill(sqlite3 *db) {
    char *sql = text(
        db,
        "SELECT group_concat('INSERT INTO ' || name || ' VALUES(' || (SELECT group_concat('1') FROM pragma_table_info(m.name)) || ');', '')"
        " FROM sqlite_master m WHERE type = 'table' AND name NOT LIKE 'sqlite%'");

    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_free(sql);
}

static void test_all_tables(void **state) {
    size_t n;
    void *image = tables_blank_live(8192, &n);
    int pages = (int)(n / 8192);

    (void)state;
    assert_non_null(image);
    sqlite3 *made = opened(NULL, 0), *listed = opened(image, n);
    assert_int_equal(tables_add_live(made, asked, 1, NULL), SQLITE_OK);
    assert_int_equal(tables_add_live(listed, asked, 1, NULL), SQLITE_OK);
    same(
        made, listed,
        "SELECT group_concat(type || name || tbl_name || coalesce(sql, '')) FROM (SELECT * FROM sqlite_master ORDER BY name)");
    same(made, listed, "SELECT group_concat(name) FROM pragma_table_info('steps')");
    /* nearly all were there: SQLite has made one table, and the index of its own that it has */
    assert_true(pages > 45);
    char later[80];
    sqlite3_snprintf(sizeof later, later, "SELECT count(*) FROM sqlite_master WHERE rootpage > %d",
                     pages);
    assert_int_equal(number(listed, later), 2);
    is_whole(listed);
    fill(listed);
    fill(made);
    is_whole(listed);
    same(made, listed, "SELECT group_concat(id) || count(*) FROM torch_step JOIN steps");
    assert_int_equal(number(listed, "SELECT count(*) FROM comm WHERE flags & 1"), 1);
    assert_int_equal(
        sqlite3_exec(listed, "INSERT INTO rank_list(ranks) VALUES(1)", NULL, NULL, NULL),
        SQLITE_CONSTRAINT);
    sqlite3_close(made);
    sqlite3_close(listed);
}

/* What has a page here, and what SQLite must make. */
static void test_what_is_not_simple(void **state) {
    static const char sql[] =
        "CREATE TABLE a(x INTEGER PRIMARY KEY, y);CREATE INDEX a_y ON a(y) WHERE y > 1;\n"
        "CREATE TABLE b(x TEXT PRIMARY KEY); CREATE INDEX b_x ON b(x);CREATE TABLE c(x UNIQUE);"
        "CREATE TABLE d(x, y, PRIMARY KEY(x, y)) WITHOUT ROWID;CREATE TABLE ab(x); CREATE INDEX ab_x ON ab(x);"
        "CREATE TABLE e(x, y, PRIMARY KEY(x, y));CREATE VIEW v AS SELECT * FROM a JOIN b USING(x)";
    struct schema_part p = {0};
    size_t n;

    (void)state;
    assert_int_equal(schema_part_add(&p, sql, sizeof sql - 1), SQLITE_OK);
    schema_part_want(&p, NULL, 0);
    void *image = blank_image(&p, 1024, &n);
    assert_int_equal(n, (1 + 5) * 1024); /* a, a_y, d, ab, ab_x */
    sqlite3 *listed = opened(image, n), *made = opened(NULL, 0);
    assert_int_equal(schema_part_make(&p, made), SQLITE_OK);
    assert_int_equal(blank_list(&p, listed), SQLITE_OK);
    same(
        made, listed,
        "SELECT group_concat(type || name || tbl_name || coalesce(sql, '')) FROM (SELECT * FROM sqlite_master ORDER BY name)");
    is_whole(listed);
    assert_int_equal(
        sqlite3_exec(
            listed,
            "INSERT INTO a VALUES(1, 2), (2, 0); INSERT INTO b VALUES(1); INSERT INTO d VALUES(1, 2);"
            "INSERT INTO ab VALUES(5); DROP TABLE ab; CREATE TABLE f(x)",
            NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(number(listed, "SELECT count(*) FROM a INDEXED BY a_y WHERE y > 1"), 1);
    is_whole(listed);
    schema_part_free(&p);
    sqlite3_close(made);
    sqlite3_close(listed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_tables),
        cmocka_unit_test(test_what_is_not_simple),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
