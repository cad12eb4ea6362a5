/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_calendar.h - SQL functions that count in days, months and years: sums, differences and bins of times.
 *
 *     sql_calendar_register(db);
 *     SELECT date_diff('day', min(timestamp), max(timestamp)), date_bin('1 month', timestamp) FROM steps;
 *
 *     date_add(ts, '1 month 2 days')   that much later; a third argument of -1: earlier; date_sub(ts, ...): earlier. A month ends on its last day.
 *     date_diff(FIELD, a, b)           how many beginnings of such a part lie between a and b; datediff too, and datediff(b, a) in days
 *     date_sub(FIELD, a, b)            how many whole parts
 *     age(a, b)                        seconds from b to a
 *     date_bin(WIDTH, ts[, ORIGIN])    the beginning of the bin that ts is in; WIDTH: seconds, or a text such as '15 minutes' or '1 month'.
 *                                      Bins begin at 1970-01-01; those of time_bucket at Monday, 2000-01-03, or 2000-01-01 for months.
 *     make_date(y, m, d), make_timestamp(y, m, d, h, min, s), last_day(ts), dayname(ts), monthname(ts)
 *
 * Times are as in sql_functions.h.
 */
#ifndef PROBING_CONVERTER_SQL_CALENDAR_H
#define PROBING_CONVERTER_SQL_CALENDAR_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. */
int sql_calendar_register(sqlite3 *db);

#endif
