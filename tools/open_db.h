/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_db.h - commands that read a database take traces as well: those are converted first, into the user's cache (cache.h) or,
 * where that cannot be or something is wrong with them, into a temporary database that is gone when the program ends, however it ends.
 *
 *     sqlite3 *db;
 *     int rc = db_open(&db, paths, n, 0);     // said what was wrong
 *     if (!db) return rc;
 *     ...
 *     sqlite3_close(db);
 *     return rc;                              // TOOL_PARTIAL: a damaged trace, converted in part
 */
#ifndef PROBING_TOOLS_OPEN_DB_H
#define PROBING_TOOLS_OPEN_DB_H

#include <sqlite3.h>

#include "../converter/when.h"

/* One database, or any number of traces and directories of traces; opened read-only. A single number that is no file is a process:
 * the trace that it is being recorded into is read (live_target.h).
 * TOOL_OK or TOOL_PARTIAL with *out, else *out is NULL and the exit code is returned. */
enum { DB_NO_CACHE = 1 };
int db_open(sqlite3 **out, char *const *paths, int n, int flags);
/* The same of a part of the time of traces (converter/convert.h): only its blocks are read. Of a database: said that it cannot be. */
struct db_part {
    struct when since, until;
};
int db_open_part(sqlite3 **out, char *const *paths, int n, int flags, const struct db_part *part);
/* Says so where the database holds several runs: what is asked is then answered over all of them. */
void db_note_runs(sqlite3 *db, const char *advice);
/* Says so where there are traces of some of a job's ranks only. */
void db_note_ranks(sqlite3 *db);
/* Whether there is anything at `path`. */
int db_exists(const char *path);
/* Whether the file at `path` begins like a SQLite database. */
int db_is_database(const char *path);

#endif
