/* SPDX-License-Identifier: Apache-2.0 */
/*
 * since_row.h - where in a trace's rows of a table those from a time on begin, without reading the ones before.
 *
 *     int64_t from;
 *     int rc = since_row(db, "torch_call", first_id, last_id, ts, &from);     // then: WHERE id BETWEEN from AND last_id
 *
 * Rows lie in the order in which they were recorded, which is nearly that of ts: of two threads each has its own order, and a call has
 * the time that it began but comes when it ends. So it begins SINCE_EARLIER before the time: who needs it exactly looks at ts too.
 */
#ifndef PROBING_TOOLS_SINCE_ROW_H
#define PROBING_TOOLS_SINCE_ROW_H

#include <sqlite3.h>
#include <stdint.h>

#define SINCE_EARLIER 10000000000 /* ns */

/* table: a name of ours, with the columns id and ts. *from: first..last + 1. SQLITE_OK or SQLite's code. */
int since_row(sqlite3 *db, const char *table, int64_t first, int64_t last, int64_t ts,
              int64_t *from);

#endif
