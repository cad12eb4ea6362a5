/* SPDX-License-Identifier: Apache-2.0 */
#include "place_rows.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

#define FIND "SELECT run, attempt FROM trace_file WHERE recording = ?1 AND run IS NOT NULL LIMIT 1"

/* Returns NULL when the database has no such columns. */
static sqlite3_stmt *ask(sqlite3 *db) {
    sqlite3_stmt *st = NULL;

    return sqlite3_prepare_v2(db, FIND, -1, &st, NULL) == SQLITE_OK ? st : NULL;
}

static int take_all(sqlite3_stmt *from, sqlite3_stmt *to, const struct align *a, size_t ntraces) {
    int rc = SQLITE_DONE;

    for (size_t i = 0; rc == SQLITE_DONE && i < ntraces; i++) {
        char recording[META_RECORDING];
        align_recording(a, i, recording);
        sqlite3_bind_text(from, 1, recording, -1, SQLITE_TRANSIENT);
        if ((rc = sqlite3_step(from)) == SQLITE_ROW) {
            sqlite3_bind_text(to, 1, recording, -1, SQLITE_TRANSIENT);
            sqlite3_bind_value(to, 2, sqlite3_column_value(from, 0));
            sqlite3_bind_value(to, 3, sqlite3_column_value(from, 1));
            rc = sqlite3_step(to);
            sqlite3_reset(to);
        }
        sqlite3_reset(from);
    }
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int place_rows_take(sqlite3 *db, const char *from, const struct align *a, size_t ntraces) {
    sqlite3 *other = NULL;
    sqlite3_stmt *st = NULL, *to = NULL;
    int rc = output_open(from, &other, SQLITE_OPEN_READONLY);

    if (rc == SQLITE_OK && (st = ask(other)) != NULL) {
        rc = sqlite3_exec(
            db,
            "CREATE TEMP TABLE known_place(recording TEXT PRIMARY KEY, run TEXT, attempt INTEGER)",
            NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_prepare_v2(db, "INSERT OR IGNORE INTO known_place VALUES(?,?,?)", -1, &to,
                                    NULL);
        if (rc == SQLITE_OK)
            rc = take_all(st, to, a, ntraces);
        sqlite3_finalize(to);
    }
    sqlite3_finalize(st);
    sqlite3_close(other);
    return rc;
}

int place_rows_find(sqlite3 *db, const struct meta *m, char **run, int64_t *attempt) {
    sqlite3_stmt *st = ask(db);
    char recording[META_RECORDING];
    int rc = SQLITE_NOTFOUND;

    if (!st)
        return rc;
    meta_recording(m, recording);
    sqlite3_bind_text(st, 1, recording, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 0);
        *run = text ? strdup(text) : NULL;
        *attempt = sqlite3_column_int64(st, 1);
        rc = *run ? SQLITE_OK : SQLITE_NOMEM;
    }
    sqlite3_finalize(st);
    return rc;
}

int place_rows_index(sqlite3 *db) {
    return sqlite3_exec(db,
                        "CREATE INDEX IF NOT EXISTS trace_file_recording ON trace_file(recording)",
                        NULL, NULL, NULL);
}
