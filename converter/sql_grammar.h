/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_grammar.h - translates calls and clauses that SQLite's grammar has not, for sql_dialect.h.
 *
 *     left(x, 2), right(x, 2), if(a, b, c)                    text_left(x, 2), text_right(x, 2), iif(a, b, c)
 *     position(a IN b)                                        instr(b, a)
 *     substring(x FROM 2 FOR 3), overlay(x PLACING y FROM 2)  substring(x, 2, 3), overlay(x, y, 2)
 *     trim(BOTH 'x' FROM y), trim(LEADING FROM y)             trim(y, 'x'), ltrim(y)
 *     strftime(ts, '%H:%M')                                   to_char(ts, '%H:%M')
 *     string_agg(x, ', ' ORDER BY y DESC), array_agg(DISTINCT x ORDER BY x), first_value(x ORDER BY y)     ordered(...) (converter/sql_ordered.h)
 *     approx_distinct(x), today(), arrow_cast(x, 'Int64')     count(DISTINCT x), date_trunc('day', now()), CAST(x AS INTEGER)
 *     INTERVAL (n + 1) MINUTE                                 ((n + 1) * 60.0)
 *     ts AT TIME ZONE 'UTC'                                   ts
 *     LIMIT ALL, OFFSET 5 without LIMIT, FETCH FIRST 5 ROWS ONLY   LIMIT -1, LIMIT -1 OFFSET 5, LIMIT 5
 *
 *     err = sql_grammar_put(&out, token, prev, &last, why);   // returns what sql_words_put() does
 */
#ifndef PROBING_CONVERTER_SQL_GRAMMAR_H
#define PROBING_CONVERTER_SQL_GRAMMAR_H

#include "sql_out.h"

/* Writes the translation of what begins at the word `t`. *last: its last token. Returns 0; 1, with nothing written, if there is nothing to translate; -ENOMEM; or
 * -EINVAL with a sentence in `why` (SQL_OUT_WHY bytes). */
int sql_grammar_put(struct sql_out *w, struct token t, struct token prev, struct token *last,
                    char *why);

#endif
