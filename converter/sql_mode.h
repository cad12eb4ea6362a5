/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_mode.h - the aggregate function mode(x): the value that occurs most often; of several, the one that came first (DuckDB gives any of them).
 * NULLs do not count.
 *
 *     rc = sql_mode_register(db);
 */
#ifndef PROBING_CONVERTER_SQL_MODE_H
#define PROBING_CONVERTER_SQL_MODE_H

#include <sqlite3.h>

/* Returns SQLITE_OK or SQLite's code. */
int sql_mode_register(sqlite3 *db);

#endif
