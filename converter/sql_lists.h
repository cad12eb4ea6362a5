/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_lists.h - functions of lists by the names of DataFusion and DuckDB. A list is a JSON text, as array_agg() makes it.
 *
 *     int rc = sql_lists_register(db);
 *
 *     array_length(l), cardinality(l)          list_contains(l, x), array_contains, array_has, list_has
 *     array_to_string(l, ', ')                 list_sort(l), array_sort       list_distinct(l), array_distinct
 *     list_sum(l), list_avg(l), list_min(l), list_max(l)                     list_value(a, b), make_array(a, b)
 */
#ifndef PROBING_CONVERTER_SQL_LISTS_H
#define PROBING_CONVERTER_SQL_LISTS_H

#include <sqlite3.h>

/* Returns SQLITE_OK or SQLite's error. */
int sql_lists_register(sqlite3 *db);

#endif
