/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_guard.h - restricts a connection that runs SQL from somebody else to reading the database that it was opened for.
 *
 *     sql_guard(db);        // from now on ATTACH, PRAGMA (except those that describe tables), writing and extensions are refused
 */
#ifndef PROBING_TOOLS_SQL_GUARD_H
#define PROBING_TOOLS_SQL_GUARD_H

#include <sqlite3.h>

void sql_guard(sqlite3 *db);

#endif
