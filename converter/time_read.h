/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_read.h - reads a time from a text whose form is given, the other way of time_format.h.
 *
 *     double t;
 *     int err = time_read("31/01/2026 12:00:00.250", "%d/%m/%Y %H:%M:%S%.f", &t);
 *     err = time_read("31-01-2026", "DD-MM-YYYY", &t);
 *     sql: to_timestamp(x, format), strptime, to_date; try_strptime: NULL where the text has another form
 *
 * A format with a '%' is one of strptime(), with %f %.f %.3f %.6f %.9f for a fraction of a second; any other is a pattern of PostgreSQL:
 *     YYYY YY MM DD DDD HH24 HH12 HH MI SS MS US AM PM MONTH MON DAY DY, in upper or lower case
 * What the format does not have is that of 1970-01-01 00:00:00 UTC.
 */
#ifndef PROBING_CONVERTER_TIME_READ_H
#define PROBING_CONVERTER_TIME_READ_H

#include <sqlite3.h>

/* Returns 0, or -EINVAL: the whole text does not have that form. */
int time_read(const char *text, const char *format, double *out);
/* Adds the functions. Returns SQLITE_OK or SQLite's error. */
int time_read_register(sqlite3 *db);

#endif
