/* SPDX-License-Identifier: Apache-2.0 */
/*
 * running.h - tells which processes of a database are still being recorded on this machine.
 *
 *     running_register(db);        // adds SQL function is_running(boot_id, pid) for traces without an end: 1, 0, or 2: stopped (SIGSTOP, debugger)
 *     running_note(db);            // prints one line on stderr when there are such processes
 *
 * The answer is about the present, whenever the database was made. A trace of another boot, or of another machine, never counts as running.
 */
#ifndef PROBING_TOOLS_RUNNING_H
#define PROBING_TOOLS_RUNNING_H

#include <sqlite3.h>

/* Returns an SQLite result code. */
int running_register(sqlite3 *db);
void running_note(sqlite3 *db);

#endif
