/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_schemas.h - names with a schema in front, as other engines and the original Probing have them:
 *
 *     sql_schemas_attach(db, NULL);
 *     SELECT table_name FROM information_schema.tables;
 *
 *     information_schema.tables, .columns, .views, .df_settings, .schemata
 *     system.process     process.envs     cluster.nodes
 *
 * Each schema is an attached database in memory; each name in it a virtual table that runs one SELECT on `main`, so
 * that nothing is copied. The `python` names (python.torch_trace) are those of `main`: the file attached a second time
 * by who opens it. More are made by CREATE VIRTUAL TABLE schema.name USING probing_name('SELECT ...'). Part of the tools and of the loadable extension.
 */
#ifndef PROBING_CONVERTER_SQL_SCHEMAS_H
#define PROBING_CONVERTER_SQL_SCHEMAS_H

#include <sqlite3.h>

/* Once for a connection, outside of a transaction. A connection that is read-only needs SQLITE_OPEN_URI. SQLITE_OK, or
 * SQLite's error; a name whose SELECT does not fit `main` (not a database of ours) is left out. `sql`: what will be asked, NULL: anything.
 * Of a text those names are there that it may mean. */
int sql_schemas_attach(sqlite3 *db, const char *sql);
/* The SELECT of name i, NULL behind the last; whether a text may mean it. */
const char *sql_schemas_reads(unsigned i);
int sql_schemas_names(const char *sql, unsigned i);

#endif
