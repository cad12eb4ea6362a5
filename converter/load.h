/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - the rows of one trace into the tables of schema/.
 *
 *     struct load_now now = {0};
 *     int rc = load_register(db, &now);      // once per database
 *     rc = load_rows(&now, &prepared->load); // each trace (prepare.h): INSERT ... SELECT for each kind of record
 *     load_end(&now);                        // before the database is closed, or read by others
 *
 * Samples come through a virtual table of their own, `probing_load`: its columns are those of table
 * `sample`, resolved already (UTC time, thread row, stack), which is a good deal faster than SQL
 * functions over `probing_trace`. Everything else is INSERT ... SELECT from `probing_trace`, with the SQL
 * function probing_utc(monotonic ns). One thread at a time.
 */
#ifndef PROBING_CONVERTER_LOAD_H
#define PROBING_CONVERTER_LOAD_H

#include "load_state.h"

/* Registers modules and functions that read what *now names. An SQLite result code, as all below. */
int load_register(sqlite3 *db, struct load_now *now);
/* The trace's samples end (load_state.h) before anything else of it is read. */
int load_rows(struct load_now *now, struct load *l);
/* Behind the last trace. */
void load_end(struct load_now *now);
/* The database outlives what load_register() was given. */
void load_unregister(sqlite3 *db);

#endif
