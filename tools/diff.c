/* SPDX-License-Identifier: Apache-2.0 */
#include "diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/sql_functions.h"
#include "common.h"

static const char side_sql[] = {
#include "tools/embed/diff_side.sql.inc"
    0};

const char *diff_side_sql(void) {
    return side_sql;
}

int diff_runs(struct diff_side sides[2], int quiet) {
    static char names[2][512];
    sqlite3_stmt *st = NULL;
    int n = 0;

    if (sides[0].run && sides[1].run)
        return TOOL_OK;
    if (sqlite3_prepare_v2(sides[0].db,
                           "SELECT run FROM runs WHERE run IS NOT NULL ORDER BY started LIMIT 2",
                           -1, &st, NULL) != SQLITE_OK)
        return tool_fail("cannot read the runs: %s", sqlite3_errmsg(sides[0].db));
    while (n < 2 && sqlite3_step(st) == SQLITE_ROW)
        snprintf(names[n++], sizeof *names, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    if (n < 2) {
        if (!quiet)
            tool_say("one run only: give the traces of two (view runs lists them), or two ranks: "
                     "probing diff --ranks A,B");
        return TOOL_PARTIAL;
    }
    for (int i = 0; i < 2; i++)
        sides[i].run = sides[i].run ? sides[i].run : names[i];
    return TOOL_OK;
}

static void bind(sqlite3_stmt *st, const char *name, const char *value, int number) {
    int i = sqlite3_bind_parameter_index(st, name);

    if (!i || !value)
        return;
    if (number)
        sqlite3_bind_int64(st, i, strtoll(value, NULL, 10));
    else
        sqlite3_bind_text(st, i, value, -1, SQLITE_STATIC);
}

/* Inserts a row of one side: of four columns into `item`, of three into `setting`. Returns SQLITE_OK or SQLite's error. */
static int keep(sqlite3_stmt *to[2], const char *side, sqlite3_stmt *row) {
    int n = sqlite3_column_count(row);
    sqlite3_stmt *st = to[n == 4 ? 0 : 1];

    sqlite3_reset(st);
    sqlite3_bind_text(st, 1, side, 1, SQLITE_STATIC);
    for (int i = 0; i < n; i++)
        sqlite3_bind_value(st, i + 2, sqlite3_column_value(row, i));
    int rc = sqlite3_step(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int gather_side(sqlite3_stmt *to[2], const char *side, const struct diff_side *from) {
    const char *sql = side_sql;
    int rc = SQLITE_OK;

    sqlite3_exec(from->db, "PRAGMA query_only = OFF", NULL, NULL, NULL); /* for temporary tables */
    while (rc == SQLITE_OK && *sql) {
        sqlite3_stmt *st = NULL;
        if ((rc = sqlite3_prepare_v2(from->db, sql, -1, &st, &sql)) != SQLITE_OK || !st)
            break;
        bind(st, ":run", from->run, 0);
        bind(st, ":rank", from->rank, 1);
        while ((rc = sqlite3_step(st)) == SQLITE_ROW)
            if ((rc = keep(to, side, st)) != SQLITE_OK)
                break;
        sqlite3_finalize(st);
        rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    if (rc != SQLITE_OK)
        return tool_fail("cannot compare: %s (was the database made by this version of "
                         "probing-convert?)",
                         sqlite3_errmsg(from->db));
    rc = sqlite3_exec(from->db,
                      "DROP TABLE temp.who; DROP TABLE temp.done; DROP TABLE temp.span;"
                      " DROP TABLE temp.per; DROP TABLE temp.piece; DROP TABLE temp.spent;"
                      " DROP TABLE temp.leaf; DROP TABLE temp.named",
                      NULL, NULL, NULL);
    return rc == SQLITE_OK ? TOOL_OK : tool_fail("cannot compare: %s", sqlite3_errmsg(from->db));
}

int diff_gather(sqlite3 **out, const struct diff_side sides[2]) {
    sqlite3_stmt *to[2] = {NULL, NULL};
    sqlite3 *db = NULL;
    int code = TOOL_OK;

    if (sqlite3_open(":memory:", &db) != SQLITE_OK || sql_functions_register(db) != SQLITE_OK ||
        sqlite3_exec(db,
                     "CREATE TABLE item(side, section, name, value, noise);"
                     " CREATE TABLE setting(side, kind, name, value); BEGIN",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "INSERT INTO item VALUES(?, ?, ?, ?, ?)", -1, &to[0], NULL) !=
            SQLITE_OK ||
        sqlite3_prepare_v2(db, "INSERT INTO setting VALUES(?, ?, ?, ?)", -1, &to[1], NULL) !=
            SQLITE_OK)
        code = tool_fail("cannot compare: %s", db ? sqlite3_errmsg(db) : "no memory");
    for (int i = 0; code == TOOL_OK && i < 2; i++)
        code = gather_side(to, i ? "b" : "a", &sides[i]);
    for (int i = 0; i < 2; i++)
        sqlite3_finalize(to[i]);
    if (code == TOOL_OK && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        code = tool_fail("cannot compare: %s", sqlite3_errmsg(db));
    if (code == TOOL_OK)
        *out = db;
    else
        sqlite3_close(db);
    return code;
}
