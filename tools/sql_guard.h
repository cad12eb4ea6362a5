/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_guard.h - SQL from somebody else: a connection that reads what it was opened for, and nothing else.
 *
 *     sql_guard(db);        // ATTACH, PRAGMA (but for those that describe tables), writing and extensions are refused from now on
 */
#ifndef PROBING_TOOLS_SQL_GUARD_H
#define PROBING_TOOLS_SQL_GUARD_H

#include <sqlite3.h>

void sql_guard(sqlite3 *db);

#endif
