/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.h - the tables, views and indexes of schema/ in a database that is being made (store.h).
 *
 *     rc = tables_make(db);
 *     ... the rows ...
 *     rc = tables_finish(db, 0, 0);
 *
 * A recording that goes on has others: its views store nothing, and it has those that a text of SQL can be about (schema_part.h; NULL: all).
 * SQLite result codes, where nothing else is said.
 */
#ifndef PROBING_CONVERTER_TABLES_H
#define PROBING_CONVERTER_TABLES_H

#include <sqlite3.h>
#include <stddef.h>

/* All that has to be there before the first row. */
int tables_make(sqlite3 *db);
/* Of a recording that goes on, into any database: the tables and views that `sql` can be about. */
int tables_make_live(sqlite3 *db, const char *sql);
/* All tables, and the views. With `added` the database has some already, and gets what it lacks: how many views that were. */
int tables_add_live(sqlite3 *db, const char *sql, size_t *added);
/* 1: a database of a recording that goes on has the views that `sql` can be about. */
int tables_have_views(sqlite3 *db, const char *sql);
/* 1: a table or view of schema/ has that name, whether or not this database has it. */
int tables_has_name(const char *name);
/* After the last row: indexes, sums, what is stored of views, figures for the planner (`adding`: where those that are there are of another size).
 * is_cache: all traces' sums by function, where they were there when the first row came, were kept as the rows came. */
int tables_finish(sqlite3 *db, int adding, int is_cache);
/* Of a recording that goes on, in which view hangs is asked anew by each statement, and planned for seconds: a temporary table of that name
 * stands before it for this connection, so that it is asked once, and not at all where nothing waits. Of another database: nothing. */
int tables_hold_hangs(sqlite3 *db);
/* 1: the database holds the sums of all traces by function, as it does where it has several traces; 0: it does not; -1: no such table. */
int tables_have_functions(sqlite3 *db);
int tables_forget_functions(sqlite3 *db);
/* Stacks that no sample has: those of a trace that was read anew, which had other names then. */
int tables_forget_stacks(sqlite3 *db);
/* The one integer that `sql` gives; -1: none. */
int tables_number(sqlite3 *db, const char *sql);

#endif
