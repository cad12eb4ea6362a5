/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_words.h - words of other engines that SQLite lacks, each with all that belongs to it: INTERVAL '5 min', EXTRACT(... FROM ...), string_agg.
 *
 *     err = sql_words_put(&out, token, &last, why);       // of sql_dialect.h's list what begins with a word; 1: it is none of them
 */
#ifndef PROBING_TOOLS_SQL_WORDS_H
#define PROBING_TOOLS_SQL_WORDS_H

#include "sql_out.h"

/* *last: the last token of it. 0; 1: it is none; -ENOMEM, or -EINVAL with a sentence in `why` (SQL_OUT_WHY). */
int sql_words_put(struct sql_out *w, struct token t, struct token *last, char *why);
/* A cast to the type at `type`. *last: its last token. 0, or -EINVAL. */
int sql_words_cast(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c,
                   char *why);

#endif
