/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_series.h - generate_series(first, last[, step]), a table with one column `value`, for example to fill the gaps of a time line.
 *
 *     int rc = sql_series_register(db);
 *     SELECT s.value, count(t.step) FROM generate_series(0, 100, 10) s LEFT JOIN steps t ON t.step BETWEEN s.value AND s.value + 9 GROUP BY 1
 *
 * Values are whole numbers, or real ones where one of the three arguments is; both ends are included. A step of 0 is an error; a NULL gives
 * no rows.
 */
#ifndef PROBING_CONVERTER_SQL_SERIES_H
#define PROBING_CONVERTER_SQL_SERIES_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. Where the program has a table of that name already, this one is not registered. */
int sql_series_register(sqlite3 *db);

#endif
