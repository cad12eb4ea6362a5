/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_target.h - `probing -t PID query|flamegraph|memory`: queries a recording that is still going on, given its process.
 *
 *     return live_command(pid, "query", argc, argv);     // argv[0] is the word, the rest its arguments
 *
 * The process writes out what it has (tools/live_inputs.h), and its trace is then read like any other. In a query, python.backtrace is the
 * current stack of the main thread, with depth 0 as the innermost frame; the view backtrace, in contrast, has the stacks of the samples.
 */
#ifndef PROBING_TOOLS_LIVE_TARGET_H
#define PROBING_TOOLS_LIVE_TARGET_H

#include <sqlite3.h>

#define LIVE_PATH 4096
/* Finds the trace that process `pid` is recorded into; from now on live_pid() returns this process. Returns TOOL_OK, or the exit code after
 * printing why. */
int live_trace(int pid, char path[LIVE_PATH]);
/* Does the same without printing anything: returns whether there is such a trace. */
int live_is_recorded(int pid, char path[LIVE_PATH]);

/* Returns 1 when `word` is one of these commands. */
int live_is_command(const char *word);
/* Returns the exit code. For a process that is not recorded, prints that and returns TOOL_FAILED. */
int live_command(int pid, const char *word, int argc, char **argv);

/* Returns the process that the current query is about, 0: none. */
int live_pid(void);
/* Provides what `sql` means by python.backtrace: the stack of the queried process, taken anew at each call. The other names of `python` in
 * the SQL are those of main. Does nothing for SQL without such a name. Returns TOOL_OK, or the exit code after printing why. */
int live_backtrace(sqlite3 *db, const char *sql);

#endif
