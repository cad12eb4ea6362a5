/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_range.h - finds the range of time that an SQL text asks for, because a question about the last minutes of a long recording need read
 * no more of it.
 *
 *     struct when since, until;
 *     if (time_range_of("SELECT count(*) FROM samples WHERE timestamp > now() - interval('5 min')", &since, &until))
 *         ... convert only that part: the rows that the text reads are in it
 *
 * SQLite runs the text on empty tables that stand for the views, and gives each of them the bounds of its column `timestamp` (as of any
 * index). The text has a range when every table that it reads was given one. Only views whose rows in a range are the same when only that
 * part is converted count; any other table or view in the text means all of the time, and so does a bound that is no number.
 */
#ifndef PROBING_TOOLS_TIME_RANGE_H
#define PROBING_TOOLS_TIME_RANGE_H

#include <sqlite3.h>

#include "../converter/when.h"

/* The range has an end, and rows that begin in it may have theirs after it: time_range_is_whole() is to be asked when it is converted. */
#define TIME_RANGE_CHECK 2

/* sql: in SQLite's dialect (sql_dialect.h). Returns 1 or TIME_RANGE_CHECK with the range, wider by some seconds than asked for (*until may be WHEN_NOT: to the end).
 * Returns 0 for all of the time, or when there is no memory; both are then left as they are. The end of the traces, which now() means, need not be
 * known here. */
int time_range_of(const char *sql, struct when *since, struct when *until);

/* Returns 1 when the database, made of the range up to *until, has all of the rows that begin in the range asked for: none of their steps,
 * calls, collectives or spans goes on after *until. Otherwise, or on errors, returns 0: convert without that end. */
int time_range_is_whole(sqlite3 *db, const struct when *until);

#endif
