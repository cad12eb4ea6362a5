/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_target.h - `probing -t PID query|flamegraph|memory`: a recording that goes on, asked by the process that makes it.
 *
 *     return live_command(pid, "query", argc, argv);     // argv[0] is the word, the rest its arguments
 *
 * The process writes out what it has (tools/live_inputs.h), and its trace is read like any other. In a query python.backtrace
 * is the stack of the main thread now, depth 0 the innermost frame; the view backtrace is that of the samples.
 */
#ifndef PROBING_TOOLS_LIVE_TARGET_H
#define PROBING_TOOLS_LIVE_TARGET_H

#include <sqlite3.h>

#define LIVE_PATH 4096
/* The trace that process `pid` is recorded into; live_pid() is that process from now on. TOOL_OK, or the exit code, said. */
int live_trace(int pid, char path[LIVE_PATH]);
/* The same without a word: whether there is one. */
int live_is_recorded(int pid, char path[LIVE_PATH]);

/* Whether `word` is one of them. */
int live_is_command(const char *word);
/* The exit code. A process that is not recorded: said, TOOL_FAILED. */
int live_command(int pid, const char *word, int argc, char **argv);

/* The process that the query of now is about, 0: none. */
int live_pid(void);
/* What `sql` means by python.backtrace: of the process that is asked its stack, taken anew at each call; the other names of `python` that are
 * in it are those of main. Nothing to do for SQL that names no such thing. TOOL_OK, or the exit code, said. */
int live_backtrace(sqlite3 *db, const char *sql);

#endif
