/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_all.h - rewrites GROUP BY ALL and ORDER BY ALL, which other engines have, into lists of places.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_all(db, text, &sql, why);     // text: from sql_dialect(); sql NULL: the text has neither, and is used as it is
 *     ... free(sql);
 *
 *     SELECT rank, count(*), step FROM t GROUP BY ALL ORDER BY ALL DESC
 *     SELECT rank, count(*), step FROM t GROUP BY 1, 3 ORDER BY 1 DESC, 2 DESC, 3 DESC
 */
#ifndef PROBING_CONVERTER_SQL_ALL_H
#define PROBING_CONVERTER_SQL_ALL_H

#include <sqlite3.h>

#include "sql_dialect.h"

/* The text may hold any number of statements. *out: malloc'ed, or NULL. Returns 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
int sql_all(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
