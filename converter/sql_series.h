/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_series.h - generate_series(first, last[, step]), a table of one column `value`: the moments of which a time line lacks some.
 *
 *     int rc = sql_series_register(db);
 *     SELECT s.value, count(t.step) FROM generate_series(0, 100, 10) s LEFT JOIN steps t ON t.step BETWEEN s.value AND s.value + 9 GROUP BY 1
 *
 * Whole numbers, or real ones where one of the three is; both ends are in it. A step of 0 or NULL gives an error, or no rows.
 */
#ifndef PROBING_CONVERTER_SQL_SERIES_H
#define PROBING_CONVERTER_SQL_SERIES_H

#include <sqlite3.h>

/* SQLITE_OK, or SQLite's error. Where the program has a table of that name its own stays. */
int sql_series_register(sqlite3 *db);

#endif
