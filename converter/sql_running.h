/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_running.h - is_running(boot_id, pid) where the recordings' live files are not looked for: in the loadable extension, and in the Python reader.
 *
 *     sql_running_register(db);       // 1: that process of this boot has our agent; 2: it is stopped; else 0
 *
 * The tools replace it by one that reads the live files (tools/running.h), and so sees processes of other users' containers, too.
 */
#ifndef PROBING_CONVERTER_SQL_RUNNING_H
#define PROBING_CONVERTER_SQL_RUNNING_H

#include <sqlite3.h>

/* Returns SQLITE_OK or SQLite's error. */
int sql_running_register(sqlite3 *db);

#endif
