/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_ordered.h - the SQL aggregate in whose arguments an ORDER BY may stand: SQLite before 3.44 cannot parse that.
 *
 *     sql_ordered_register(db);
 *     SELECT ordered('text', 'dl', name, ', ', rank) FROM threads;     -- string_agg(name, ', ' ORDER BY rank DESC NULLS LAST)
 *
 *     ordered(WHAT, ORDER, x, MORE, key...)    WHAT: text (of what is not NULL; MORE: the separator), list (a JSON text), first, last, nth (MORE: which, from 1)
 *     ORDER has two letters for each key: a (ascending) or d, then where NULL is, f (first) or l; before them D for DISTINCT. Blanks may follow.
 */
#ifndef PROBING_CONVERTER_SQL_ORDERED_H
#define PROBING_CONVERTER_SQL_ORDERED_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. All rows of a group are kept in memory. */
int sql_ordered_register(sqlite3 *db);

#endif
