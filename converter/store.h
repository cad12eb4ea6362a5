/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the database being made: a temporary file beside its final name, renamed when whole.
 *
 *     struct store st;
 *     int err = store_open(&st, "out.db", 0);      // creates out.db.tmp-PID with schema.sql's tables
 *     ... fill st.db ...
 *     err = store_finish(&st);                       // indexes, ANALYZE, close, rename
 *     store_abort(&st);                              // or: leaves nothing behind
 *
 * An old database stays as it is until the rename, which replaces it in one step. Errors are
 * sentences in st.error, for people.
 */
#ifndef PROBING_CONVERTER_STORE_H
#define PROBING_CONVERTER_STORE_H

#include <sqlite3.h>

struct store {
    sqlite3 *db;
    int force;
    char path[4096], temp[4128];
    char error[4608];
};

/* 0; -EEXIST: out is there and `force` is not given; other -errno. After an error nothing is left. */
int store_open(struct store *s, const char *out, int force);
/* Turns an SQLite result into -errno and st.error. */
int store_failed(struct store *s, int rc, const char *doing);
/* 0 or -errno; either way the store is closed and no temporary file remains. */
int store_finish(struct store *s);
void store_abort(struct store *s);

#endif
