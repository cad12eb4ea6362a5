/* SPDX-License-Identifier: Apache-2.0 */
#include "own_tables.h"

#include <string.h>

#include "bind.h"
#include "tables.h"

#define TABLES_MOST  100
#define COLUMNS_MOST 500
#define MARK         "/* the program's own table */"

/* An index that finds the rows of tables without looking at all other events. */
#define INDEX                                                                                      \
    "CREATE INDEX IF NOT EXISTS main.event_of_table ON event(name) WHERE name GLOB 'python.*'"

/* Names of tables that have rows, and of tables that were declared. */
#define NAMES                                                                                                     \
    "SELECT DISTINCT substr(name, 8) FROM main.event WHERE name GLOB 'python.*' AND name <> 'python.table()'"     \
    " UNION SELECT k.value FROM main.event v CROSS JOIN main.event_value k ON k.event = v.id AND k.key = 'table'" \
    " WHERE v.name = 'python.table()' AND v.name GLOB 'python.*' AND typeof(k.value) = 'text'"

/* Columns of table ?1: first the declared ones, then those of its first and last rows; the column timestamp exists in any case. */
#define COLUMNS                                                                                     \
    "SELECT name FROM (SELECT 0 AS sort, c.id, c.value AS name FROM main.event v"                   \
    " CROSS JOIN main.event_value n ON n.event = v.id AND n.key = 'table' AND n.value = ?1"         \
    " CROSS JOIN main.event_value c ON c.event = v.id AND c.key GLOB '[0-9]*'"                      \
    " WHERE v.name = 'python.table()' AND v.name GLOB 'python.*'"                                   \
    " UNION ALL SELECT 1, k.id, k.key FROM main.event_value k WHERE k.event IN ("                   \
    "SELECT min(id) FROM main.event WHERE name = 'python.' || ?1 AND name GLOB 'python.*'"          \
    " UNION SELECT max(id) FROM main.event WHERE name = 'python.' || ?1 AND name GLOB 'python.*'))" \
    " WHERE name <> '' AND name <> 'timestamp' COLLATE NOCASE"                                      \
    " GROUP BY lower(name) ORDER BY min(sort), min(id)"

/* Columns that every view gets as well, unless the program has a column of that name. */
static const char *const more[][2] = {
    {"step", "v.step"}, {"rank", "t.rank"}, {"pid", "t.pid"}, {"trace_id", "t.id"}};
#define NMORE (sizeof more / sizeof *more)

/* Returns the SQL that makes the view, for sqlite3_free(); NULL: *rc says why. */
static char *text_of(sqlite3 *db, const char *table, const char *view, int *rc) {
    sqlite3_stmt *st = NULL;
    unsigned has = 0;
    sqlite3_str *s = sqlite3_str_new(db);

    sqlite3_str_appendf(s,
                        "CREATE VIEW \"%w\" AS " MARK
                        " SELECT coalesce((SELECT k.value FROM event_value k"
                        " WHERE k.event = v.id AND k.key = 'timestamp'), v.ts / 1e9) AS timestamp",
                        view);
    *rc = sqlite3_prepare_v2(db, COLUMNS, -1, &st, NULL);
    if (*rc == SQLITE_OK)
        *rc = sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
    for (unsigned n = 0; *rc == SQLITE_OK && n < COLUMNS_MOST && sqlite3_step(st) == SQLITE_ROW;
         n++) {
        const char *key = (const char *)sqlite3_column_text(st, 0);
        if (!key)
            continue;
        for (unsigned i = 0; i < NMORE; i++)
            has |= (unsigned)(sqlite3_stricmp(key, more[i][0]) == 0) << i;
        sqlite3_str_appendf(
            s,
            ", (SELECT k.value FROM event_value k WHERE k.event = v.id AND k.key = %Q) AS \"%w\"",
            key, key);
    }
    *rc = sql_end(st, *rc);
    for (unsigned i = 0; i < NMORE; i++)
        if (!(has >> i & 1))
            sqlite3_str_appendf(s, ", %s AS %s", more[i][1], more[i][0]);
    sqlite3_str_appendf(s,
                        " FROM event v CROSS JOIN trace_file t ON t.id = v.id >> 40"
                        " WHERE v.name = 'python.%q' AND v.name GLOB 'python.*'",
                        table);
    char *text = sqlite3_str_finish(s);
    if (!text && *rc == SQLITE_OK)
        *rc = SQLITE_NOMEM;
    return text;
}

/* Returns 1 when a table or view of that name exists, or belongs to every database. *text: its SQL if it is a view made here, for sqlite3_free(). */
static int is_taken(sqlite3 *db, const char *view, char **text) {
    sqlite3_stmt *st = NULL;
    int taken = tables_has_name(view);

    *text = NULL;
    if (!taken &&
        sqlite3_prepare_v2(db, "SELECT sql FROM main.sqlite_master WHERE name = ?1 COLLATE NOCASE",
                           -1, &st, NULL) == SQLITE_OK &&
        sqlite3_bind_text(st, 1, view, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(st, 0);
        taken = 1;
        if (sql && strstr(sql, MARK))
            *text = sqlite3_mprintf("%s", sql);
    }
    sqlite3_finalize(st);
    return taken;
}

/* Makes the view of a table. When SQLite refuses it (named `sqlite_x`, for example), only that view is missing. */
static int make_view(sqlite3 *db, const char *table) {
    char *other = sqlite3_mprintf("python_%s", table), *was = NULL, *drop = NULL;
    const char *view = table;
    int rc = other ? SQLITE_OK : SQLITE_NOMEM;

    if (rc == SQLITE_OK && is_taken(db, view, &was) && !was &&
        (is_taken(db, view = other, &was) && !was)) {
        sqlite3_free(other);
        return SQLITE_OK;
    }
    char *text = rc == SQLITE_OK ? text_of(db, table, view, &rc) : NULL;
    if (rc == SQLITE_OK && was && strcmp(was, text) != 0) {
        drop = sqlite3_mprintf("DROP VIEW main.\"%w\"", view);
        rc = drop ? sqlite3_exec(db, drop, NULL, NULL, NULL) : SQLITE_NOMEM;
    }
    if (rc == SQLITE_OK && (!was || drop))
        rc = sqlite3_exec(db, text, NULL, NULL, NULL);
    sqlite3_free(text);
    sqlite3_free(drop);
    sqlite3_free(was);
    sqlite3_free(other);
    return rc == SQLITE_ERROR ? SQLITE_OK : rc;
}

int own_tables_make(sqlite3 *db) {
    char *name[TABLES_MOST] = {NULL};
    sqlite3_stmt *st = NULL;
    int n = 0, rc = SQLITE_OK;

    if (tables_number(db, "SELECT EXISTS (SELECT 1 FROM main.event)") != 1)
        return SQLITE_OK;
    if ((rc = sqlite3_exec(db, INDEX, NULL, NULL, NULL)) == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, NAMES, -1, &st, NULL);
    while (rc == SQLITE_OK && n < TABLES_MOST && sqlite3_step(st) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 0);
        if (text && *text && !(name[n++] = sqlite3_mprintf("%s", text)))
            rc = SQLITE_NOMEM;
    }
    rc = sql_end(st, rc);
    for (int i = 0; i < n; i++) {
        if (rc == SQLITE_OK)
            rc = make_view(db, name[i]);
        sqlite3_free(name[i]);
    }
    return rc;
}
