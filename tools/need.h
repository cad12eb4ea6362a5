/* SPDX-License-Identifier: Apache-2.0 */
/*
 * need.h - of which records SQL can say anything: the others of a long recording need not become rows for its answer.
 *
 *     uint64_t types = need_of("SELECT max(rss) FROM memory_usage");     // the metrics'; bit i: record i (traces/records.def)
 *
 * SQLite plans the text on empty tables and tells what it would read, through all views. 0: all, or it cannot be told.
 */
#ifndef PROBING_TOOLS_NEED_H
#define PROBING_TOOLS_NEED_H

#include <stdint.h>

#include "../traces/records.h"

uint64_t need_of(const char *sql);
/* Of what a live process records: where the last calls may be enough (last_calls.h) VTAB_LAST_CALLS, too. */
uint64_t need_of_live(const char *sql);
#define NEED_NOTHING                                                                               \
    (1ull << 63) /* not even what the trace says of itself: no database is needed */

/*
 * Of ended traces: what they say of themselves is enough, `SELECT rank FROM trace` (or names of tables: SHOW TABLES), and that is what is to be read. 0: all, so that
 * the database of the first question answers the next ones, too, whatever they are about.
 */
#define NEED_TRACES (1ull << TRACE_process)
uint64_t need_of_traces(const char *sql);
/* Of a part of their time: 0 as of need_of(). It is small, and another question about it may make a database of its own. */
uint64_t need_of_part(const char *sql);

#endif
