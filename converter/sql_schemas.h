/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_schemas.h - names qualified by a schema, as in other engines and in the original Probing:
 *
 *     sql_schemas_attach(db, NULL);
 *     SELECT table_name FROM information_schema.tables;
 *
 *     information_schema.tables, .columns, .views, .df_settings, .schemata
 *     system.process     process.envs     cluster.nodes
 *
 * Each schema is an attached database in memory. Each name in it is a virtual table that runs one SELECT on `main`, so nothing is copied.
 * The names in `python` (python.torch_trace) are those of `main`: whoever opens the database attaches the same file a second time. CREATE
 * VIRTUAL TABLE schema.name USING probing_name('SELECT ...') adds more names. This is part of the tools and of the loadable extension.
 */
#ifndef PROBING_CONVERTER_SQL_SCHEMAS_H
#define PROBING_CONVERTER_SQL_SCHEMAS_H

#include <sqlite3.h>

/* Call once for a connection, outside of a transaction. A read-only connection needs SQLITE_OPEN_URI. Returns SQLITE_OK, or SQLite's error.
 * Leaves out a name whose SELECT does not fit `main` (when that is not a database of ours). `sql`: the text that will be asked, of which
 * only the names that it may use are made; NULL: make all. */
int sql_schemas_attach(sqlite3 *db, const char *sql);
/* Returns the SELECT of name i, NULL after the last; and whether a text may use that name. */
const char *sql_schemas_reads(unsigned i);
int sql_schemas_names(const char *sql, unsigned i);
/* Returns whether the text may name a schema, or ask which ones there are. */
int sql_schemas_may_name(const char *sql, const char *schema);

#endif
