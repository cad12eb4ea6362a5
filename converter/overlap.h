/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - computes how much of a process's communication overlapped its computation, for `probing ask overlap`.
 *
 *     overlap_register(db);      // then, in SQL on that connection:
 *     SELECT o.value ->> 'op', o.value ->> 'under' FROM trace_file t, json_each(overlap(t.id, '[17, 18]', NULL)) o;
 *
 * overlap(trace, stacks, since): a JSON array with an object for each kind of operation of the process that the trace is of, in all its files (rotation),
 * from a time (ns) on: op, calls, and these sums over its calls, in nanoseconds:
 *   duration, host  duration of the calls, and the time that their thread spent inside them
 *   under           the part of duration that lies under forward passes, backward passes and optimizer steps, counted once where several are going on
 *                   (of other threads, or modules that are computed anew in a backward pass); a thread does not compute while it is inside the call
 *   waited          the part of that in which all threads with a pass waited, as samples with one of these stacks show that lie in a pass of their
 *                   thread. A sample stands for all of its time, within the call that is going on at its moment, and where several threads wait, each
 *                   for its share of that
 *   stepped         of all calls, whether or not they were seen to complete, that began within a step; where several are going on, the first one's
 * and for the process: steps, the total duration of its steps, and waits, the number of such samples. NULL when `trace` is NULL.
 *
 * SQL alone took seven times as long, because it looks up the passes and samples of each call; here both are sorted arrays. Reads the rows
 * of torch_call, sample, comm and torch_step from that time on once. Memory: 24 bytes for each pass, sample, step and call of a process. Every
 * connection of open_db.h has the function.
 */
#ifndef PROBING_CONVERTER_OVERLAP_H
#define PROBING_CONVERTER_OVERLAP_H

#include <sqlite3.h>

/* Registers the function. Returns SQLITE_OK or SQLite's code. */
int overlap_register(sqlite3 *db);

#endif
