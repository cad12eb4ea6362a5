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
/* DB_NO_PYTHON: without the names python.*, which are the schema a second time: to read it takes longer than most answers. */
/* DB_SAID: what is wrong with the traces was said before. */
enum { DB_NO_CACHE = 1, DB_NO_PYTHON = 2, DB_SAID = 4 };
int db_open(sqlite3 **out, char *const *paths, int n, int flags);
/* The same of a part of the time of traces (converter/convert.h): only its blocks are read. Of a database: said that it cannot be. */
struct db_part {
    struct when since, until;
    const char *
        sql; /* what will be asked, or NULL. Of a live process, and where no database is kept, what says nothing to it need not be there */
    int python; /* of the samples' stacks the Python frames are enough; with `alone` */
    int alone; /* that of ended traces neither, nor their process groups: no other question follows, and there may be thousands */
};
int db_open_part(sqlite3 **out, char *const *paths, int n, int flags, const struct db_part *part);
/* Says so where the database holds several runs: what is asked is then answered over all of them. */
void db_note_runs(sqlite3 *db, const char *advice);
/* Says so where there are traces of some of a job's ranks only, or two processes have one number. */
void db_note_ranks(sqlite3 *db);
/* Says so where the clocks of a run's machines could not be aligned. `path`: what was asked for; of traces their conversion has said it. */
void db_note_clocks(sqlite3 *db, const char *path);
/* Whether there is anything at `path`. */
int db_exists(const char *path);
/* Whether the file at `path` begins like a SQLite database. */
int db_is_database(const char *path);

#endif
