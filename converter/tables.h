/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.h - creates the tables, views and indexes of schema/ in a database that is being made (store.h).
 *
 *     rc = tables_make(db);
 *     ... the rows ...
 *     rc = tables_finish(db, 0, 0);
 *
 * The database of a recording that is still going on differs: its views are not stored, and it has only the views that an SQL text can
 * refer to (schema_part.h; NULL: all). Functions return SQLite result codes where nothing else is said.
 */
#ifndef PROBING_CONVERTER_TABLES_H
#define PROBING_CONVERTER_TABLES_H

#include <sqlite3.h>
#include <stddef.h>

/* Creates all that is needed before the first row. */
int tables_make(sqlite3 *db);
/* For a recording that is going on: creates, in any database, the tables and views that `sql` can refer to. */
int tables_make_live(sqlite3 *db, const char *sql);
/* Creates all tables, and those views; with no_stacks, those for samples without stacks. With `added` the database has some of them already and gets the missing ones; *added: how many of
 * these were views. */
int tables_add_live(sqlite3 *db, const char *sql, int no_stacks, size_t *added);
/* Returns 1 when the database of a recording that is going on has all views that `sql` can refer to. */
int tables_have_views(sqlite3 *db, const char *sql);
/* Returns 1 when a table or view of schema/ has that name, whether or not this database contains it. */
int tables_has_name(const char *name);
/* Call after the last row: makes indexes, sums, stored views, and statistics for the query planner (with `adding` only if the existing ones
 * were made for another size). is_cache: the sums by function over all traces, if they existed when the first row came, were updated as the
 * rows came. */
int tables_finish(sqlite3 *db, int adding, int is_cache);
/* For a recording that is going on, whose view hangs would be evaluated anew by each statement and take seconds to plan: makes a temporary
 * table of that name, which hides the view for this connection, so that it is evaluated once, and not at all when nothing waits. Does
 * nothing in another database. */
int tables_hold_hangs(sqlite3 *db);
/* Returns 1 when the database holds the sums by function over all traces, as it does with several traces; 0: it does not; -1: it has no such table. */
int tables_have_functions(sqlite3 *db);
int tables_forget_functions(sqlite3 *db);
/* Deletes stacks that no sample refers to: those of a trace that was read anew, and that had other names before. */
int tables_forget_stacks(sqlite3 *db);
/* Returns the single integer that `sql` gives; -1: none. */
int tables_number(sqlite3 *db, const char *sql);

#endif
