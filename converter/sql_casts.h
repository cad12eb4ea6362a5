/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_casts.h - SQL functions that convert values to types that SQLite's CAST does not know: CAST turns 'true' into 0, and a time into a text of its seconds.
 *
 *     int rc = sql_casts_register(db);
 *
 *     time_text(ts)      '2026-01-31 12:00:00.5'       date_text(ts)   '2026-01-31'
 *     time_of_day(x)     '12:00:00.5', of a timestamp or of a text such as '12:00'
 *     to_boolean(x)      0 or 1, of a number or of 'true', 'no', 'off' ...; another text is an error
 *     as_number(x)       x as a number, as_int(x) as one that is whole; an error for a text that is not one; try_number, try_int, try_boolean and
 *                        try_timestamp: NULL for it
 *     round_to(x, n)     round(x, n), also for n < 0, which SQLite's round() takes for 0
 */
#ifndef PROBING_CONVERTER_SQL_CASTS_H
#define PROBING_CONVERTER_SQL_CASTS_H

#include <sqlite3.h>

/* Returns SQLITE_OK or an SQLite error code. */
int sql_casts_register(sqlite3 *db);
/* Sets *out to the timestamp in `v`, in seconds since the epoch. Returns 1; or 0, with the function's result set to NULL or to an error. */
int sql_casts_time(sqlite3_context *ctx, sqlite3_value *v, double *out);

#endif
