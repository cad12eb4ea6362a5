/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_texts.h - SQL functions of texts that SQLite lacks.
 *
 *     sql_texts_register(db);
 *     SELECT lpad(rank, 4, '0'), split_part(module, '.', -1), concat_ws('/', host, name) FROM threads;
 *
 *     starts_with, ends_with (prefix, suffix), contains(x, y)      whether; strpos(x, y), find_in_set(x, 'a,b'): where
 *     split_part(x, BY, nth), substr_index(x, BY, n)               parts of a text
 *     lpad, rpad(x, n[, FILL]), text_left, text_right(x, n)        `probing query` has left() and right(), which SQLite cannot parse
 *     concat(...), concat_ws(BY, ...)                              leave NULL out, unlike ||
 *     initcap, reverse, repeat(x, n), translate(x, FROM, TO), overlay(x, y, at[, n])
 *     ascii, chr, character_length (len), octet_length, bit_length, to_hex, levenshtein(x, y)
 *
 * Lengths and places are in characters.
 */
#ifndef PROBING_CONVERTER_SQL_TEXTS_H
#define PROBING_CONVERTER_SQL_TEXTS_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. */
int sql_texts_register(sqlite3 *db);

#endif
