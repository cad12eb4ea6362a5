/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_picks.h - functions that return one of the values that they are given: greatest, least; arg_max, arg_min (max_by, min_by), first,
 * last.
 *
 *     int rc = sql_picks_register(db);
 *
 * greatest and least ignore NULL, as in PostgreSQL and DuckDB; SQLite's max(a, b) is NULL when one of them is NULL.
 */
#ifndef PROBING_CONVERTER_SQL_PICKS_H
#define PROBING_CONVERTER_SQL_PICKS_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. */
int sql_picks_register(sqlite3 *db);
/* Compares two values, which are not NULL, as SQLite sorts them: numbers before texts before blobs. */
int sql_picks_order(sqlite3_value *a, sqlite3_value *b);

#endif
