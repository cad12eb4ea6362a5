/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_aggregates.h - the aggregate functions of sql_functions.h: percentiles, variances, ranges. They ignore NULL and text.
 *
 *     int rc = sql_aggregates_register(db);
 */
#ifndef PROBING_CONVERTER_SQL_AGGREGATES_H
#define PROBING_CONVERTER_SQL_AGGREGATES_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. Memory: median and percentile need 8 bytes for each row of a group. */
int sql_aggregates_register(sqlite3 *db);

#endif
