/* SPDX-License-Identifier: Apache-2.0 */
/*
 * need.h - finds the record types that an SQL text can read, because the other records of a long recording need not become rows for its
 * answer.
 *
 *     uint64_t types = need_of("SELECT max(rss) FROM memory_usage");     // those of the metrics; bit i is record type i (traces/records.def)
 *
 * SQLite plans the text on empty tables and reports what it would read, through all views. 0: all types, or it cannot be told.
 */
#ifndef PROBING_TOOLS_NEED_H
#define PROBING_TOOLS_NEED_H

#include <stdint.h>

#include "../traces/records.h"

uint64_t need_of(const char *sql);
/* For the recording of a live process: adds VTAB_LAST_CALLS where the last calls may be enough (last_calls.h). */
uint64_t need_of_live(const char *sql);
#define NEED_NOTHING                                                                               \
    (1ull << 63) /* not even what the trace says of itself: no database is needed */

/*
 * For traces that have ended: returns NEED_TRACES when what the traces say of themselves is enough, as for `SELECT rank FROM trace` (or
 * names of tables: SHOW TABLES), and only that has to be read. Otherwise returns 0, all types, so that the database made for the first
 * question answers the next ones too, whatever they are about.
 */
#define NEED_TRACES (1ull << TRACE_process)
uint64_t need_of_traces(const char *sql);
/* For a part of the time of traces: as need_of(). The database of a part is small, so another question about that part may make its own.
 * Adds VTAB_NOT_STORED where no view is read whose rows are stored. */
uint64_t need_of_part(const char *sql);

#endif
