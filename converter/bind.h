/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.h - values of a row that may be unknown: what is not bound is NULL.
 */
#ifndef PROBING_CONVERTER_BIND_H
#define PROBING_CONVERTER_BIND_H

#include <sqlite3.h>
#include <stdint.h>

/* text: copied; NULL or "" is NULL in the row. */
static inline void bind_text(sqlite3_stmt *st, int i, const char *text) {
    if (text && *text)
        sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
}

static inline void bind_known(sqlite3_stmt *st, int i, int known, int64_t v) {
    if (known)
        sqlite3_bind_int64(st, i, v);
}

#endif
