/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_rows.h - which run a trace is of and which attempt of it: what only all traces together tell (schema/90_after_load.sql), for who reads
 * them one by one. probing_align() leaves a row of table trace_file for each beside the clocks.
 *
 *     rc = place_rows_take(db, "other.db", align, ntraces);   // what another database says of these, for tables_finish()
 *     rc = place_rows_find(db, meta, &run, &attempt);         // of one trace; free(run)
 *     rc = place_rows_index(db);                              // so that each is found at once
 *
 * SQLite result codes.
 */
#ifndef PROBING_CONVERTER_PLACE_ROWS_H
#define PROBING_CONVERTER_PLACE_ROWS_H

#include <sqlite3.h>

#include "align.h"
#include "meta.h"

/* A database that has no such table, or an older one, says nothing. */
int place_rows_take(sqlite3 *db, const char *from, const struct align *align, size_t ntraces);
/* SQLITE_NOTFOUND: it does not know the trace, or not of which run it is. run: UTF-8, malloc'ed. */
int place_rows_find(sqlite3 *db, const struct meta *m, char **run, int64_t *attempt);
int place_rows_index(sqlite3 *db);

#endif
