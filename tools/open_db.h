/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_db.h - lets commands that read a database take traces as well. Traces are converted first, into the user's cache (cache.h) or, when
 * that is impossible or something is wrong with them, into a temporary database that disappears when the program ends, however it ends.
 *
 *     sqlite3 *db;
 *     int rc = db_open(&db, paths, n, 0);     // prints what was wrong
 *     if (!db) return rc;
 *     ...
 *     sqlite3_close(db);
 *     return rc;                              // TOOL_PARTIAL: a damaged trace, converted as far as possible
 */
#ifndef PROBING_TOOLS_OPEN_DB_H
#define PROBING_TOOLS_OPEN_DB_H

#include <sqlite3.h>

#include "../converter/when.h"

/* Opens, read-only, one database, or any number of traces and directories of traces. A single number that is not the name of a file is a
 * process: the trace that it is being recorded into is read (live_target.h). Returns TOOL_OK or TOOL_PARTIAL with *out; otherwise sets *out
 * to NULL and returns the exit code. */
/* DB_NO_PYTHON: without the names python.*; for them the schema is read a second time, which takes longer than most answers. */
/* DB_SAID: what is wrong with the traces was printed before. */
enum { DB_NO_CACHE = 1, DB_NO_PYTHON = 2, DB_SAID = 4 };
int db_open(sqlite3 **out, char *const *paths, int n, int flags);
/* Does the same for a part of the time of traces (converter/convert.h): only the blocks of that part are read. A database is refused, with
 * a message. */
struct db_part {
    struct when since, until;
    const char *
        sql; /* what will be asked, or NULL. For a live process, and where no database is cached, records that it does not need may be missing */
    int python; /* only the Python frames of the samples' stacks are needed; with `alone` */
    int alone; /* no other question follows: records that it does not need may be missing for ended traces too, and process groups, of which
                * there may be thousands */
};
int db_open_part(sqlite3 **out, char *const *paths, int n, int flags, const struct db_part *part);
/* Returns 1 when there is anything at `path`. */
int db_exists(const char *path);
/* Returns 1 when the file at `path` begins like an SQLite database. */
int db_is_database(const char *path);

#endif
