/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_functions.h - SQL functions that users know from other engines and that SQLite lacks.
 *
 *     sql_functions_register(db);
 *     SELECT hour(timestamp), avg(rss) FROM memory_usage WHERE timestamp > now() - 300 GROUP BY 1;
 *
 *     now()                            the time at which the recordings in `main` (table trace_file) end; without recordings, the current time
 *     to_timestamp(x)                  seconds since the epoch of a text ('2026-01-31 12:00:00.5', 'T', 'Z' and '+02:00' too), or x itself; also as
 *                                      epoch, to_unixtime, from_unixtime; with a format: time_read.h; to_timestamp_seconds, _millis, _micros, _nanos: of a number of these
 *     interval('1 hour 30 min')        seconds; `probing query` rewrites INTERVAL '1 hour 30 min' to it, a syntax that no function can add to SQLite
 *     year quarter month week day hour minute second, date_part(FIELD, ts), date_trunc(FIELD, ts)
 *     date_bin, date_diff, date_add and what else counts in days and months (sql_calendar.h)
 *     to_char(ts, FORMAT), date_format  a text: 'YYYY-MM-DD HH24:MI:SS' or '%Y-%m-%d %H:%M:%S' (time_format.h)
 *     median(x)  percentile(x, 0..100)  percentile_cont(x, 0..1), also as quantile, quantile_cont, approx_median, approx_quantile and
 *                                      approx_percentile, approx_percentile_cont; exact. percentile_disc, quantile_disc: one of the values
 *     ranges(n)                        the whole numbers of a group as a text, "0-2,7,9-11"
 *     greatest, least, arg_max, arg_min, first, last (sql_picks.h), generate_series (sql_series.h)
 *     time_of_day, time_text, to_boolean and what else casts give (sql_casts.h)
 *     functions of texts (sql_texts.h), lists (sql_lists.h) and numbers, corr and regr_slope (sql_numbers.h), ordered: string_agg(x, y ORDER BY z) (sql_ordered.h)
 *     x REGEXP p, regexp_like, regexp_match, regexp_replace, regexp_extract, regexp_count (sql_regex.h)
 *     stddev var, stddev_samp var_samp (the same), stddev_pop var_pop
 *
 * A timestamp (ts) is seconds since the epoch, as in the views, or a text; fields are in UTC. NULL arguments give NULL; anything that is no
 * timestamp is an error. Aggregates ignore NULL and text. now() is read once for each connection. These functions are part of the tools and
 * of the loadable extension.
 */
#ifndef PROBING_CONVERTER_SQL_FUNCTIONS_H
#define PROBING_CONVERTER_SQL_FUNCTIONS_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. Memory: median and percentile need 8 bytes for each row of a group. */
int sql_functions_register(sqlite3 *db);

#endif
