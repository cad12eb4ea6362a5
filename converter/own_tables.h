/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_tables.h - makes a view for each table that the recorded program defined itself (probing.ExternalTable).
 *
 *     rc = own_tables_make(db);     // after the last row
 *
 * A row of such a table is an event named python.TABLE whose values are the columns. The event python.table() says what columns a table
 * has, even when the table has no rows. Where another table or view has the name already, the view is called python_TABLE. The names come
 * from the program, and are treated as untrusted.
 */
#ifndef PROBING_CONVERTER_OWN_TABLES_H
#define PROBING_CONVERTER_OWN_TABLES_H

#include <sqlite3.h>

/* Some views may exist already, with fewer columns. Returns an SQLite result code. */
int own_tables_make(sqlite3 *db);

#endif
