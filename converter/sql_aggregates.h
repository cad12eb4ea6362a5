/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_aggregates.h - the aggregates of sql_functions.h: percentiles, variances, ranges. They leave NULL and text out.
 *
 *     int rc = sql_aggregates_register(db);
 */
#ifndef PROBING_CONVERTER_SQL_AGGREGATES_H
#define PROBING_CONVERTER_SQL_AGGREGATES_H

#include <sqlite3.h>

/* SQLITE_OK, or SQLite's error. Memory: 8 bytes a row and group for median and percentile. */
int sql_aggregates_register(sqlite3 *db);

#endif
