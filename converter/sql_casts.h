/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_casts.h - what a value is as another type, where SQLite's CAST knows no such type: it makes 0 of 'true', and of a time as a text its seconds.
 *
 *     int rc = sql_casts_register(db);
 *
 *     time_text(ts)      '2026-01-31 12:00:00.5'       date_text(ts)   '2026-01-31'
 *     time_of_day(x)     '12:00:00.5', of a timestamp or of a text such as '12:00'
 *     to_boolean(x)      0 or 1, of a number or of 'true', 'no', 'off' ...; another text is an error
 *     try_number(x)      x; NULL where it is a text and not a number
 *     round_to(x, n)     round(x, n), also for n < 0: SQLite takes that for 0
 */
#ifndef PROBING_CONVERTER_SQL_CASTS_H
#define PROBING_CONVERTER_SQL_CASTS_H

#include <sqlite3.h>

/* SQLITE_OK, or SQLite's error. */
int sql_casts_register(sqlite3 *db);
/* The timestamp in `v`. 1: there is one; 0: NULL, or an error was set. */
int sql_casts_time(sqlite3_context *ctx, sqlite3_value *v, double *out);

#endif
