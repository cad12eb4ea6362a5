/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - inserts the rows of one trace into the tables of schema/.
 *
 *     struct load_now now = {0};
 *     int rc = load_register(db, &now);      // once per database
 *     rc = load_rows(&now, &prepared->load); // each trace (prepare.h): INSERT ... SELECT for each kind of record
 *     load_end(&now);                        // before the database is closed, or others read it
 *
 * Samples are read through a virtual table of their own, `probing_load`. Its columns are those of table `sample`, already resolved (UTC
 * time, thread row, stack), which is much faster than SQL functions over `probing_trace`. Everything else is INSERT ... SELECT from
 * `probing_trace`, with the SQL function probing_utc(monotonic ns). One thread at a time.
 */
#ifndef PROBING_CONVERTER_LOAD_H
#define PROBING_CONVERTER_LOAD_H

#include "load_state.h"

/* Registers the modules and functions that read the trace named by *now. Returns an SQLite result code, as do all functions below. */
int load_register(sqlite3 *db, struct load_now *now);
/* Loads the trace. All its samples are read (load_state.h) before any other records. */
int load_rows(struct load_now *now, struct load *l);
/* Call after the last trace. */
void load_end(struct load_now *now);
/* Call when the database outlives what load_register() was given. */
void load_unregister(sqlite3 *db);

#endif
