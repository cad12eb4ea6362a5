/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_star.h - SELECT * EXCLUDE (a, b), t.* EXCEPT (a), * REPLACE (a * 2 AS a) and * RENAME (a AS b) of other engines: the names of
 * the columns in their place.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_star(db, text, &sql, why);    // text: as sql_dialect() gave it; sql NULL: it has none of them, and stays as it is
 *     ... free(sql);
 */
#ifndef PROBING_TOOLS_SQL_STAR_H
#define PROBING_TOOLS_SQL_STAR_H

#include <sqlite3.h>

#include "sql_dialect.h"

/* Any number of statements. *out: malloc, or NULL. 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
int sql_star(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
