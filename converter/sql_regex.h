/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_regex.h - SQL functions of regular expressions (regex.h).
 *
 *     sql_regex_register(db);
 *     SELECT regexp_replace(module, '\.\d+', '.*', 'g') FROM torch_trace WHERE module REGEXP '^Net';
 *
 *     x REGEXP p, regexp_like(x, p[, FLAGS]), regexp_matches     whether x has a match; regexp_full_match: is one. FLAGS: i (ignore case), g (all)
 *     regexp_count(x, p[, from[, FLAGS]])      how many
 *     regexp_match(x, p[, FLAGS])              the groups of the first match, or all of it, as a list (a JSON text); NULL: there is none
 *     regexp_extract(x, p[, group[, FLAGS]])   the first match, or a group of it; '' if there is none
 *     regexp_replace(x, p, y[, FLAGS])         \1 or $1 in y is a group
 */
#ifndef PROBING_CONVERTER_SQL_REGEX_H
#define PROBING_CONVERTER_SQL_REGEX_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. */
int sql_regex_register(sqlite3 *db);

#endif
