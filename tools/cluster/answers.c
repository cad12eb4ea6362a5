/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers.c - keeps the rows of all nodes in one table of a temporary SQLite database.
 *
 * SQLite reads the JSON, so that numbers keep their 64 bits, and an answer that is not JSON is refused as a whole. Times (in columns with
 * the names that the views use for them) are moved to the clock of this machine: what the server's clock is ahead is subtracted.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "converter/sql_functions.h"
#include "tools/cluster/cluster.h"
#include "tools/common.h"

#define COLUMNS_MAX 500

struct answers {
    sqlite3 *db;
    char *name[COLUMNS_MAX]; /* names as the servers gave them; unique: names in the table */
    char *unique[COLUMNS_MAX];
    int ncols;
};

struct answers *answers_new(void) {
    struct answers *a = calloc(1, sizeof *a);

    if (a && (sqlite3_open("", &a->db) != SQLITE_OK || sql_functions_register(a->db) != SQLITE_OK ||
              sqlite3_exec(a->db,
                           "PRAGMA synchronous = OFF; PRAGMA temp_store = FILE;"
                           "CREATE TABLE answers(place INTEGER, node TEXT)",
                           NULL, NULL, NULL) != SQLITE_OK)) {
        answers_free(a);
        a = NULL;
    }
    return a;
}

void answers_free(struct answers *a) {
    if (!a)
        return;
    sqlite3_close(a->db);
    for (int i = 0; i < a->ncols; i++) {
        free(a->name[i]);
        sqlite3_free(a->unique[i]);
    }
    free(a);
}

sqlite3 *answers_db(struct answers *a) {
    return a->db;
}

static int is_taken(const struct answers *a, const char *name) {
    if (strcasecmp(name, "place") == 0 || strcasecmp(name, "node") == 0)
        return 1;
    for (int i = 0; i < a->ncols; i++) {
        if (strcasecmp(a->unique[i], name) == 0)
            return 1;
    }
    return 0;
}

/* Returns the column for the k-th value of a row, added if there is none of that name. -1: too many columns, or an error. */
static int column_of(struct answers *a, int k, const char *name) {
    if (k < a->ncols && strcmp(a->name[k], name) == 0)
        return k;
    for (int i = 0; k < a->ncols && i < a->ncols;
         i++) { /* a server of another version may have another order */
        if (strcmp(a->name[i], name) == 0)
            return i;
    }
    if (a->ncols == COLUMNS_MAX)
        return -1;
    char *unique = sqlite3_mprintf("%s", name);
    for (int i = 1; unique && is_taken(a, unique); i++) {
        sqlite3_free(unique);
        unique = sqlite3_mprintf("%s:%d", name, i);
    }
    char *sql = unique ? sqlite3_mprintf("ALTER TABLE answers ADD COLUMN \"%w\"", unique) : NULL,
         *copy = strdup(name);
    if (!sql || !copy || sqlite3_exec(a->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        sqlite3_free(unique);
        sqlite3_free(sql);
        free(copy);
        return -1;
    }
    sqlite3_free(sql);
    a->name[a->ncols] = copy;
    a->unique[a->ncols] = unique;
    return a->ncols++;
}

/* ---- times ---- */

static int is_time(const char *name) {
    static const char *const names[] = {"timestamp", "start",  "end",  "started", "ended",
                                        "begin",     "first",  "last", "ts",      "t",
                                        "start_ts",  "end_ts", "time"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcasecmp(name, names[i]) == 0)
            return 1;
    }
    return 0;
}

/* Binds a value. If it is a time, it is moved: seconds or nanoseconds since the epoch, from 2001 to 5138. Other numbers are no times. */
static void bind(sqlite3_stmt *to, int at, sqlite3_value *v, const char *name, double offset) {
    int type = sqlite3_value_type(v);
    double number = type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_value_double(v) : 0;

    if (!isfinite(offset) || !is_time(name) || !(number > 1e9))
        sqlite3_bind_value(to, at, v);
    else if (number < 1e11)
        sqlite3_bind_double(to, at, number - offset);
    else if (type == SQLITE_INTEGER && number > 1e18)
        sqlite3_bind_int64(to, at, sqlite3_value_int64(v) - (int64_t)llround(offset * 1e9));
    else
        sqlite3_bind_value(to, at, v);
}

/* ---- rows ---- */

static sqlite3_stmt *insert_of(struct answers *a) {
    sqlite3_stmt *st = NULL;
    char *sql = sqlite3_mprintf("INSERT INTO answers VALUES(?, ?");

    for (int i = 0; sql && i < a->ncols; i++)
        sql = sqlite3_mprintf("%z, ?", sql);
    sql = sqlite3_mprintf("%z)", sql);
    if (sql)
        sqlite3_prepare_v2(a->db, sql, -1, &st, NULL);
    sqlite3_free(sql);
    return st;
}

/* Inserts one row, a JSON object. *insert, the prepared INSERT, is made anew when there are more columns than before. */
static int add_row(struct answers *a, const struct ask *ask, size_t place, sqlite3_stmt *cells,
                   sqlite3_value *row, sqlite3_stmt **insert) {
    int rc, k = 0, column;

    sqlite3_bind_value(cells, 1, row);
    for (; (rc = sqlite3_step(cells)) == SQLITE_ROW; k++) { /* the columns */
        if ((column = column_of(a, k, (const char *)sqlite3_column_text(cells, 0))) < 0)
            return -EBADMSG;
    }
    sqlite3_reset(cells);
    if (rc != SQLITE_DONE)
        return -EBADMSG;
    if (!*insert || sqlite3_bind_parameter_count(*insert) != a->ncols + 2) {
        sqlite3_finalize(*insert);
        if (!(*insert = insert_of(a)))
            return -ENOMEM;
    }
    sqlite3_bind_int64(*insert, 1, (sqlite3_int64)place);
    sqlite3_bind_text(*insert, 2, ask->node->address, -1, SQLITE_STATIC);
    for (k = 0; (rc = sqlite3_step(cells)) == SQLITE_ROW; k++) {
        const char *name = (const char *)sqlite3_column_text(cells, 0);
        bind(*insert, 3 + column_of(a, k, name), sqlite3_column_value(cells, 1), name, ask->offset);
    }
    sqlite3_reset(cells);
    rc = sqlite3_step(*insert);
    sqlite3_reset(*insert);
    sqlite3_clear_bindings(*insert);
    return rc == SQLITE_DONE ? 0 : -ENOMEM;
}

int answers_add(struct answers *a, struct ask *ask, size_t place) {
    sqlite3_stmt *rows = NULL, *cells = NULL, *insert = NULL;
    int err = 0, rc = SQLITE_ERROR, before = a->ncols;

    sqlite3_exec(a->db, "SAVEPOINT node", NULL, NULL, NULL);
    if (sqlite3_prepare_v2(a->db,
                           "SELECT value, type FROM json_each(CASE WHEN json_type(?1) = 'array'"
                           " THEN ?1 ELSE 'no' END)",
                           -1, &rows, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(a->db, "SELECT key, atom, type FROM json_each(?1)", -1, &cells, NULL) ==
            SQLITE_OK) {
        sqlite3_bind_text64(rows, 1, ask->text, ask->n, SQLITE_STATIC, SQLITE_UTF8);
        while (!err && (rc = sqlite3_step(rows)) == SQLITE_ROW) {
            const char *type = (const char *)sqlite3_column_text(rows, 1);
            err = type && strcmp(type, "object") == 0
                      ? add_row(a, ask, place, cells, sqlite3_column_value(rows, 0), &insert)
                      : -EBADMSG;
        }
    }
    if (!err && rc != SQLITE_DONE)
        err = -EBADMSG;
    sqlite3_finalize(rows);
    sqlite3_finalize(cells);
    sqlite3_finalize(insert);
    sqlite3_exec(a->db, err ? "ROLLBACK TO node; RELEASE node" : "RELEASE node", NULL, NULL, NULL);
    while (err && a->ncols > before) { /* the rollback has removed the columns, too */
        free(a->name[--a->ncols]);
        sqlite3_free(a->unique[a->ncols]);
    }
    if (err == -EBADMSG)
        snprintf(ask->error, sizeof ask->error,
                 "its answer is not what a server of probing's says");
    else if (err)
        snprintf(ask->error, sizeof ask->error, "its rows cannot be kept: %s", strerror(-err));
    return err;
}

char *answers_select(struct answers *a) {
    char *sql = a->ncols ? sqlite3_mprintf("SELECT node") : NULL;

    for (int i = 0; sql && i < a->ncols; i++)
        sql = sqlite3_mprintf("%z, \"%w\"", sql, a->unique[i]);
    return sql ? sqlite3_mprintf("%z FROM answers ORDER BY place, rowid", sql) : NULL;
}
