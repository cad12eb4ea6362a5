/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_dialect.h - what people write who come from other engines, in the words that SQLite understands.
 *
 *     char *sql, why[SQL_DIALECT_WHY];
 *     int err = sql_dialect("SELECT now() - INTERVAL '5 min'", &sql, why);   // "SELECT now() - (300.0)"
 *     ... free(sql);
 *
 *     INTERVAL '1 hour 30 min', INTERVAL '5' MINUTE, INTERVAL 5 MINUTE    seconds (a month is 30 days, a year 365)
 *     EXTRACT(hour FROM ts)        date_part('hour', ts)
 *     a ILIKE b                    a LIKE b (which takes no notice of case for ASCII)
 *     SHOW TABLES | SHOW ALL | SHOW COLUMNS FROM t | DESCRIBE t (DESC t)     a SELECT on information_schema
 *
 * Strings, quoted names and comments stay as they are, and so does all else: errors in it are SQLite's to find.
 * The functions are in converter/sql_functions.h, information_schema in converter/sql_schemas.h.
 */
#ifndef PROBING_TOOLS_SQL_DIALECT_H
#define PROBING_TOOLS_SQL_DIALECT_H

#define SQL_DIALECT_WHY 200

/* Any number of statements. *out: malloc. 0, -ENOMEM, or -EINVAL (no such unit of time) with a sentence in `why`. */
int sql_dialect(const char *sql, char **out, char why[SQL_DIALECT_WHY]);

#endif
