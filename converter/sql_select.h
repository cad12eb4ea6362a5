/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_select.h - rewrites QUALIFY and DISTINCT ON, which other engines have, into SELECTs that SQLite understands.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_select(db, text, &sql, why);   // text: from sql_dialect(); sql NULL: the text has neither, and is used as it is
 *     ... free(sql);
 *
 *     SELECT * FROM t WHERE a QUALIFY row_number() OVER (PARTITION BY r ORDER BY s) = 1 ORDER BY x LIMIT 3
 *     SELECT c1 AS "r", ... FROM (WITH q(c1, ..., k, o1) AS (SELECT *, (row_number() ... = 1), x FROM t WHERE a) SELECT * FROM q)
 *         WHERE k ORDER BY o1 LIMIT 3
 *
 *     SELECT DISTINCT ON (r) * FROM t ORDER BY r, s        the same with row_number() OVER (PARTITION BY r ORDER BY r, s) = 1
 *
 * In the condition and behind ORDER BY, a name that the SELECT defines (AS n) stands for its expression. The database tells which columns
 * there are, so the tables of the statement must exist in it.
 */
#ifndef PROBING_CONVERTER_SQL_SELECT_H
#define PROBING_CONVERTER_SQL_SELECT_H

#include <sqlite3.h>

#include "sql_dialect.h"

/* The text may hold any number of statements. *out: malloc'ed, or NULL. Returns 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
int sql_select(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
