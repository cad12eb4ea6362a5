/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the database that is being made: a temporary file beside its final name, renamed when it is complete.
 *
 *     struct store st;
 *     int err = store_open(&st, "out.db", 0, NULL, &inputs); // creates out.db.tmp-XXXXXX with the tables of schema/
 *     ... fill st.db ...
 *     err = store_finish(&st, NULL);                 // indexes, ANALYZE, close, rename
 *     store_abort(&st);                              // or this, which leaves nothing behind
 *
 * An old database stays unchanged until the rename, which replaces it in one step; output.h says what may be replaced. Without a name
 * (NULL) the database is one that nobody else can open, and store_finish() returns its handle. Errors are sentences for people in st.error.
 */
#ifndef PROBING_CONVERTER_STORE_H
#define PROBING_CONVERTER_STORE_H

#include <sqlite3.h>

#include "inputs.h"

struct store {
    sqlite3 *db;
    const struct inputs *inputs; /* borrowed: never replaced */
    int fd, force, named;
    int cache, grows; /* grows: more will be added later */
    int no_stacks, not_stored;
    const char *asked; /* borrowed, during store_open() */
    size_t added;      /* number of views that were missing */
    int adding;        /* the database existed: everything is one transaction */
    unsigned runs;     /* number of runs in the finished database */
    char ranks[512];   /* message of ranks_said.h about the finished database */
    char path[4096], temp[4128];
    char error[4608];
};

/*
 * STORE_FORCE: replaces an existing database; without it, -EEXIST. STORE_ADD: adds to an existing database, or makes it. Everything is one
 * transaction: after a failure, a full disk or a kill the database is as it was. Errors: -EPROTONOSUPPORT: its tables are of another
 * version; -EBUSY: another program is writing it; -EINVAL: it is not one of ours. STORE_CACHE: the database of a recording that is still
 * going on (convert.h). A new one stores no views (schema/66_views_stored.sql), and has only the views that `asked` can refer to
 * (schema_part.h; NULL: all); views that are missing later are added. STORE_NO_STACKS: of such a one, its samples never get a stack.
 * STORE_NOT_STORED: any other new one stores no views either.
 */
enum {
    STORE_FORCE = 1,
    STORE_ADD = 2,
    STORE_CACHE = 4,
    STORE_NO_STACKS = 8,
    STORE_NOT_STORED = 16
};
/* Returns 0 or -errno; after an error nothing is left behind. */
int store_open(struct store *s, const char *out, unsigned how, const char *asked,
               const struct inputs *inputs);
/* Used when nothing was added: closes the database unchanged, or returns the handle as store_finish() does. */
void store_leave(struct store *s, sqlite3 **db);
/* Turns an SQLite result code into a -errno and a sentence in st.error. */
int store_failed(struct store *s, int rc, const char *doing);
/* Returns 0 or -errno; either way the store is closed and no temporary file remains. *db is set to the handle of a database without a name,
 * and of a cache that existed or is made for a question, so that this need not read its schema and pages again. */
int store_finish(struct store *s, sqlite3 **db);
void store_abort(struct store *s);

#endif
