/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the database being made: a temporary file beside its final name, renamed when whole.
 *
 *     struct store st;
 *     int err = store_open(&st, "out.db", 0, NULL, &inputs); // creates out.db.tmp-XXXXXX with the tables of schema/
 *     ... fill st.db ...
 *     err = store_finish(&st, NULL);                 // indexes, ANALYZE, close, rename
 *     store_abort(&st);                              // or: leaves nothing behind
 *
 * An old database stays as it is until the rename, which replaces it in one step; output.h says what may be replaced.
 * Without a name (NULL) the database is one that nobody else can open, and store_finish() gives out the handle.
 * Errors are sentences in st.error, for people.
 */
#ifndef PROBING_CONVERTER_STORE_H
#define PROBING_CONVERTER_STORE_H

#include <sqlite3.h>

#include "inputs.h"

struct store {
    sqlite3 *db;
    const struct inputs *inputs; /* borrowed: never replaced */
    int fd, force, named;
    int cache, grows;  /* grows: more is added later */
    const char *asked; /* borrowed, during store_open() */
    size_t added;      /* views that were not there */
    int adding;        /* the database was there: all is one transaction */
    unsigned runs;     /* how many the finished database holds */
    char ranks[512];   /* ranks_said.h, of the finished database */
    char path[4096], temp[4128];
    char error[4608];
};

/*
 * STORE_FORCE: what is there is replaced, else -EEXIST.
 * STORE_ADD: goes on in a database that is there, or makes it. All that is done is one transaction: after a failure, a full disk, a kill
 * it is as it was. -EPROTONOSUPPORT: its tables are of another version; -EBUSY: somebody else writes it; -EINVAL: none of ours.
 * STORE_CACHE: of a recording that goes on, converter/convert.h; a new one stores no view (schema/66_views_stored.sql),
 * and has those that `asked` can be about (schema_part.h; NULL: all); those that are missing are added.
 */
enum { STORE_FORCE = 1, STORE_ADD = 2, STORE_CACHE = 4 };
/* 0 or -errno: after an error nothing is left. */
int store_open(struct store *s, const char *out, unsigned how, const char *asked,
               const struct inputs *inputs);
/* Nothing was added: closes it as it was, or gives out the handle as store_finish() does. */
void store_leave(struct store *s, sqlite3 **db);
/* Turns an SQLite result into -errno and st.error. */
int store_failed(struct store *s, int rc, const char *doing);
/* 0 or -errno; either way the store is closed and no temporary file remains. *db: the handle, of a database without a name and of a
 * cache that was there: a question that follows need not read its schema again. */
int store_finish(struct store *s, sqlite3 **db);
void store_abort(struct store *s);

#endif
