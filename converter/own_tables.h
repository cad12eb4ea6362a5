/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_tables.h - the program's own tables (probing.ExternalTable): a view of each.
 *
 *     rc = own_tables_make(db);     // behind the last row
 *
 * A row is an event named python.TABLE whose values are its columns; the event python.table() says of a table what its columns are, also where it has
 * no row. Of a name that another table or view has the view is python_TABLE. The names are the program's, and so are taken for anything.
 */
#ifndef PROBING_CONVERTER_OWN_TABLES_H
#define PROBING_CONVERTER_OWN_TABLES_H

#include <sqlite3.h>

/* Also where some are there already, of fewer columns. An SQLite result code. */
int own_tables_make(sqlite3 *db);

#endif
