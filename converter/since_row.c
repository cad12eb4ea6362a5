/* SPDX-License-Identifier: Apache-2.0 */
#include "since_row.h"

#include <stddef.h>

int since_row(sqlite3 *db, const char *table, int64_t first, int64_t last, int64_t ts,
              int64_t *from) {
    int64_t lo = first, hi = last + 1;
    sqlite3_stmt *st = NULL;
    char *sql = sqlite3_mprintf(
        "SELECT id, ts FROM %s WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 1", table);
    int rc = sql ? sqlite3_prepare_v2(db, sql, -1, &st, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    while (rc == SQLITE_OK && lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        sqlite3_bind_int64(st, 1, middle);
        sqlite3_bind_int64(st, 2, hi - 1);
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW && sqlite3_column_int64(st, 1) < ts - SINCE_EARLIER)
            lo = sqlite3_column_int64(st, 0) + 1;
        else
            hi = middle; /* also if there is no row from `middle` on */
        sqlite3_reset(st);
        rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    sqlite3_finalize(st);
    *from = lo;
    return rc;
}
