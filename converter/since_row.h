/* SPDX-License-Identifier: Apache-2.0 */
/*
 * since_row.h - finds where, in a trace's rows of a table, the rows from a given time on begin, without reading the rows before.
 *
 *     int64_t from;
 *     int rc = since_row(db, "torch_call", first_id, last_id, ts, &from);     // then: WHERE id BETWEEN from AND last_id
 *
 * Rows lie in the order in which they were recorded, which is only nearly the order of ts: each thread has its own order, and a call has
 * the time when it began but is recorded when it ends. So the search looks for a time SINCE_EARLIER before the given one; a caller who
 * needs exact results must compare ts too.
 */
#ifndef PROBING_CONVERTER_SINCE_ROW_H
#define PROBING_CONVERTER_SINCE_ROW_H

#include <sqlite3.h>
#include <stdint.h>

#define SINCE_EARLIER 10000000000 /* ns */

/* table: the name of one of our tables, with columns id and ts. *from: first..last + 1. Returns SQLITE_OK or SQLite's code. */
int since_row(sqlite3 *db, const char *table, int64_t first, int64_t last, int64_t ts,
              int64_t *from);

#endif
