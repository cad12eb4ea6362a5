/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_rows.h - the run and the attempt that a trace belongs to. Only all traces together tell this (schema/90_after_load.sql); here it is
 * looked up for somebody who reads traces one by one. For that, probing_align() writes a row of table trace_file for each trace, beside the
 * clocks.
 *
 *     rc = place_rows_take(db, "other.db", align, ntraces);   // copies what another database says of these traces, for tables_finish()
 *     rc = place_rows_find(db, meta, &run, &attempt);         // looks up one trace; free(run)
 *     rc = place_rows_index(db);                              // makes an index, so that each trace is found quickly
 *
 * Functions return SQLite result codes.
 */
#ifndef PROBING_CONVERTER_PLACE_ROWS_H
#define PROBING_CONVERTER_PLACE_ROWS_H

#include <sqlite3.h>

#include "align.h"
#include "meta.h"

/* Takes nothing from a database that has no such table, or an older version of it. */
int place_rows_take(sqlite3 *db, const char *from, const struct align *align, size_t ntraces);
/* Returns SQLITE_NOTFOUND when the database does not know the trace or its run. run: UTF-8, malloc'ed. */
int place_rows_find(sqlite3 *db, const struct meta *m, char **run, int64_t *attempt);
int place_rows_index(sqlite3 *db);

#endif
