/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.h - how much of a trace's communication lay under its computing, for `probing ask overlap`.
 *
 *     overlap_register(db);      // then, in SQL on that connection:
 *     SELECT o.value ->> 'op', o.value ->> 'under' FROM trace_file t, json_each(overlap(t.id, '[17, 18]', NULL)) o;
 *
 * overlap(trace, stacks, since): a JSON array with an object for each operation of the trace from a time (ns) on: op, calls, and in nanoseconds,
 * summed over its calls,
 *   duration, host  the call, and what of it its thread spent inside
 *   under           what of it lay under forward passes, backward passes and optimizer steps, of one after the other where several threads
 *                   compute; a thread computes nothing while it is inside the call
 *   waited          of that, what samples with one of these stacks say was waited for: those that lie in a pass of their thread. A sample
 *                   stands for all of its time in the call that its moment lies in
 *   stepped         of all calls, seen to complete or not, that began within a step
 * and of the trace: steps, how long its steps took, and waits, how many such samples it has. NULL where trace is.
 *
 * SQL alone took seven times as long: it looks up each call's passes and samples, where here both lie sorted. Reads the rows of torch_call,
 * sample, comm and torch_step from that time on once. Memory: 24 bytes a pass, sample or step of a trace.
 * Every connection of open_db.h has the function.
 */
#ifndef PROBING_TOOLS_OVERLAP_H
#define PROBING_TOOLS_OVERLAP_H

#include <sqlite3.h>

/* Makes the function known. SQLITE_OK or SQLite's code. */
int overlap_register(sqlite3 *db);

#endif
