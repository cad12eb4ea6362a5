/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.h - binds values of a row that may be unknown (what is not bound is NULL), and runs small statements.
 */
#ifndef PROBING_CONVERTER_BIND_H
#define PROBING_CONVERTER_BIND_H

#include <sqlite3.h>
#include <stdint.h>

/* Binds a copy of the text; NULL and "" become NULL in the row. */
static inline void bind_text(sqlite3_stmt *st, int i, const char *text) {
    if (text && *text)
        sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
}

static inline void bind_known(sqlite3_stmt *st, int i, int known, int64_t v) {
    if (known)
        sqlite3_bind_int64(st, i, v);
}

/* Runs a statement that gives no rows, and resets it so that it can be run again with other values. Returns an SQLite result code. */
static inline int sql_done(sqlite3_stmt *st) {
    int rc = sqlite3_step(st);

    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Finalizes a statement whose rows were read in a loop. Returns rc or, if that is SQLITE_OK, the error that ended the rows too early. */
static inline int sql_end(sqlite3_stmt *st, int rc) {
    int ended = sqlite3_finalize(st);

    return rc == SQLITE_OK ? ended : rc;
}

/* Sets *out to the first column of the first row, 0 when there is no row. Returns an SQLite result code. */
static inline int sql_number(sqlite3 *db, const char *sql, sqlite3_int64 *out) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    *out = 0;
    if (rc != SQLITE_OK)
        return rc;
    if (sqlite3_step(st) == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    return sqlite3_finalize(st);
}

#endif
