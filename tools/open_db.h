/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_db.h - commands that read a database take traces as well: those are converted into a
 * temporary database first, which is gone when the program ends, however it ends.
 *
 *     sqlite3 *db;
 *     int rc = db_open(&db, paths, n);        // said what was wrong
 *     if (!db) return rc;
 *     ...
 *     sqlite3_close(db);
 *     return rc;                              // TOOL_PARTIAL: a damaged trace, converted in part
 */
#ifndef PROBING_TOOLS_OPEN_DB_H
#define PROBING_TOOLS_OPEN_DB_H

#include <sqlite3.h>

/* One database, or any number of traces and directories of traces; opened read-only.
 * TOOL_OK or TOOL_PARTIAL with *out, else *out is NULL and the exit code is returned. */
int db_open(sqlite3 **out, char *const *paths, int n);
/* Says so where the database holds several runs: what is asked is then answered over all of them. */
void db_note_runs(sqlite3 *db, const char *advice);
/* Whether the file at `path` begins like a SQLite database. */
int db_is_database(const char *path);

#endif
