/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_picks.h - functions that give one of the values that they see: greatest, least; arg_max, arg_min (max_by, min_by), first, last.
 *
 *     int rc = sql_picks_register(db);
 *
 * greatest and least leave NULL out, as PostgreSQL's and DuckDB's do: SQLite's max(a, b) is NULL where one of them is.
 */
#ifndef PROBING_CONVERTER_SQL_PICKS_H
#define PROBING_CONVERTER_SQL_PICKS_H

#include <sqlite3.h>

/* SQLITE_OK, or SQLite's error. */
int sql_picks_register(sqlite3 *db);

#endif
