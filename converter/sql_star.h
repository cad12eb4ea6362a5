/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_star.h - rewrites SELECT * EXCLUDE (a, b), t.* EXCEPT (a), * REPLACE (a * 2 AS a) and * RENAME (a AS b), which other engines
 * have, into lists of columns.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_star(db, text, &sql, why);    // text: from sql_dialect(); sql NULL: the text has none of these, and is used as it is
 *     ... free(sql);
 */
#ifndef PROBING_CONVERTER_SQL_STAR_H
#define PROBING_CONVERTER_SQL_STAR_H

#include <sqlite3.h>

#include "sql_dialect.h"

/* The text may hold any number of statements. *out: malloc'ed, or NULL. Returns 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
int sql_star(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
