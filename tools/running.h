/* SPDX-License-Identifier: Apache-2.0 */
/*
 * running.h - which processes of a database are still being recorded on this machine.
 *
 *     running_register(db);        // SQL: is_running(boot_id, pid), 1 or 0, of a trace without an end; 2: it is stopped (SIGSTOP, a debugger)
 *     running_note(db);            // one line on stderr where there are such
 *
 * As of now, whenever the database was made. A trace of another boot, or of a machine elsewhere, is never taken for one.
 */
#ifndef PROBING_TOOLS_RUNNING_H
#define PROBING_TOOLS_RUNNING_H

#include <sqlite3.h>

/* An SQLite result code. */
int running_register(sqlite3 *db);
void running_note(sqlite3 *db);

#endif
