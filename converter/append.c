/* SPDX-License-Identifier: Apache-2.0 */
#include "append.h"

#include <stdlib.h>
#include <string.h>

int append_load(struct append *a, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "SELECT id, recording, bytes FROM trace_file", -1, &st, NULL);

    memset(a, 0, sizeof *a);
    keys_init(&a->names);
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 1);
        uint32_t id = (uint32_t)sqlite3_column_int64(st, 0);
        a->last = id > a->last ? id : a->last;
        rc = SQLITE_OK;
        if (!name)
            continue;
        int64_t bytes = sqlite3_column_int64(st, 2);
        if (strncmp(name, "part ", 5) == 0) { /* only some of it is there */
            name += 5;
            bytes = -1;
        }
        uint32_t n = keys_put(&a->names, name, strlen(name), NULL);
        if (n > a->cap) {
            size_t cap = a->cap * 2 + 64;
            void *p = realloc(a->trace, cap * sizeof *a->trace);
            a->trace = p ? p : a->trace;
            a->cap = p ? cap : a->cap;
        }
        if (n == 0 || n > a->cap)
            rc = SQLITE_NOMEM;
        else
            a->trace[n - 1] = (struct append_trace){id, bytes};
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void append_free(struct append *a) {
    keys_free(&a->names);
    free(a->trace);
    memset(a, 0, sizeof *a);
}

enum append_state append_state(const struct append *a, const char *recording, uint64_t bytes,
                               uint32_t *trace) {
    uint32_t n = a->names.n ? keys_find(&a->names, recording, strlen(recording)) : 0;

    if (n == 0)
        return APPEND_NEW;
    *trace = a->trace[n - 1].id;
    return a->trace[n - 1].bytes < (int64_t)bytes ? APPEND_GROWN : APPEND_SAME;
}

/* Every table knows its trace by a column `trace`, by `id` or by `thread`; those that all traces share do not. */
int append_forget(sqlite3 *db, uint32_t trace) {
    static const char tables[] =
        "SELECT m.name, max(c.name = 'trace'), max(c.name = 'id'), max(c.name = 'thread') FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name NOT IN"
        " ('function', 'frame', 'stack', 'part', 'clock_boot', 'clock_knot', 'trace_file') GROUP BY m.name";
    char *sql = sqlite3_mprintf("DELETE FROM trace_file WHERE id = %u;", trace);
    long long base = (long long)trace << 40;
    sqlite3_stmt *st;
    int rc = sql ? sqlite3_prepare_v2(db, tables, -1, &st, NULL) : SQLITE_NOMEM;

    if (rc != SQLITE_OK) {
        sqlite3_free(sql);
        return rc;
    }
    while (sql && sqlite3_step(st) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        char *more = NULL;
        if (sqlite3_column_int(st, 1))
            more = sqlite3_mprintf("%s DELETE FROM \"%w\" WHERE trace = %u;", sql, name, trace);
        else if (sqlite3_column_int(st, 2) || sqlite3_column_int(st, 3))
            more = sqlite3_mprintf("%s DELETE FROM \"%w\" WHERE %s BETWEEN %lld AND %lld;", sql,
                                   name, sqlite3_column_int(st, 2) ? "id" : "thread", base,
                                   base | 0xffffffffff);
        else
            continue;
        sqlite3_free(sql);
        sql = more;
    }
    sqlite3_finalize(st);
    rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

int append_clocks(sqlite3 *db, struct align *al) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT b.id, b.boot_id, b.\"group\", k.mono, k.utc, b.method, coalesce(b.uncertainty_ns, -1) FROM clock_boot b LEFT JOIN clock_knot k ON k.boot = b.id"
        " ORDER BY b.id, k.mono",
        -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *boot = (const char *)sqlite3_column_text(st, 1);
        int knot = sqlite3_column_type(st, 3) == SQLITE_INTEGER;
        rc = align_known(al, (uint32_t)sqlite3_column_int64(st, 0), boot ? boot : "",
                         (unsigned)sqlite3_column_int(st, 2), knot, sqlite3_column_int64(st, 3),
                         sqlite3_column_int64(st, 4)) == 0
                 ? SQLITE_OK
                 : SQLITE_NOMEM;
        const char *method = (const char *)sqlite3_column_text(st, 5);
        align_known_how(al, boot ? boot : "", method ? method : "", sqlite3_column_double(st, 6));
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}
