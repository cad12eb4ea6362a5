/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_words.h - translates what begins with a word that SQLite lacks, such as INTERVAL '5 min', EXTRACT(... FROM ...) and string_agg.
 *
 *     err = sql_words_put(&out, token, prev, &last, why);       // what sql_dialect.h lists and begins with a word; 1: something else
 */
#ifndef PROBING_CONVERTER_SQL_WORDS_H
#define PROBING_CONVERTER_SQL_WORDS_H

#include "sql_out.h"

/* Writes the translation of what begins at `t`. *last: its last token. Returns 0; 1, with nothing written, if there is nothing to translate; -ENOMEM; or -EINVAL
 * with a sentence in `why` (SQL_OUT_WHY bytes). */
int sql_words_put(struct sql_out *w, struct token t, struct token prev, struct token *last,
                  char *why);
/* sql_cast_to(), with a sentence in `why` for -EINVAL. */
int sql_words_cast(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c,
                   char *why);

#endif
