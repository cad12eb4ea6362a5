/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_select.h - QUALIFY and DISTINCT ON, which other engines have, as SELECTs of SQLite.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_select(db, text, &sql, why);   // text: as sql_dialect() gave it; sql NULL: it has neither, and stays as it is
 *     ... free(sql);
 *
 *     SELECT * FROM t WHERE a QUALIFY row_number() OVER (PARTITION BY r ORDER BY s) = 1 ORDER BY x LIMIT 3
 *     SELECT c1 AS "r", ... FROM (WITH q(c1, ..., k, o1) AS (SELECT *, (row_number() ... = 1), x FROM t WHERE a) SELECT * FROM q)
 *         WHERE k ORDER BY o1 LIMIT 3
 *
 *     SELECT DISTINCT ON (r) * FROM t ORDER BY r, s        the same with row_number() OVER (PARTITION BY r ORDER BY r, s) = 1
 *
 * In the condition and behind ORDER BY a name that the SELECT gives (AS n) is what it stands for. What columns there are the database says:
 * what the statement is made of must be in it.
 */
#ifndef PROBING_TOOLS_SQL_SELECT_H
#define PROBING_TOOLS_SQL_SELECT_H

#include <sqlite3.h>

#include "sql_dialect.h"

/* Any number of statements. *out: malloc, or NULL. 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
int sql_select(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
