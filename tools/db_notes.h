/* SPDX-License-Identifier: Apache-2.0 */
/*
 * db_notes.h - says what a user should know of the traces in a database before reading an answer from it, on standard error.
 *
 *     db_note_runs(db, "column run of trace and view runs tell them apart");
 *
 * Each function prints nothing where there is nothing to say, or when the database cannot be read.
 */
#ifndef PROBING_TOOLS_DB_NOTES_H
#define PROBING_TOOLS_DB_NOTES_H

#include <sqlite3.h>

/* Prints a note when the database holds several runs, because the question is then answered over all of them. */
void db_note_runs(sqlite3 *db, const char *advice);
/* Prints a note when only some ranks of a job have traces, or when two processes have the same rank. */
void db_note_ranks(sqlite3 *db);
/* Prints a note when the clocks of a run's machines could not be aligned (`path`: what the user named; for traces, the conversion has
 * printed that already), and when a trace has no time of day. */
void db_note_clocks(sqlite3 *db, const char *path);

#endif
