/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_tokens.h - splits an SQL text into tokens.
 *
 *     for (struct token t = sql_token(sql); t.kind != END; t = sql_after(t))
 *         if (sql_is(t, "select")) ...
 *
 * Any text can be split: a quote that is never closed extends to the end of the text.
 */
#ifndef PROBING_CONVERTER_SQL_TOKENS_H
#define PROBING_CONVERTER_SQL_TOKENS_H

#include <stddef.h>

enum kind { END, SPACE, WORD, NUMBER, STRING, QUOTED, SIGN };
struct token {
    enum kind kind;
    const char *p;
    size_t n;
};

/* Returns the token at p. A run of blanks or a comment is one token (SPACE), and each sign is one. */
struct token sql_token(const char *p);
/* Returns the next token after `t` that is neither blank nor comment. */
struct token sql_after(struct token t);
/* Returns 1 when the token is that word, in upper or lower case. */
int sql_is(struct token t, const char *word);
/* Returns 1 when it is one of several words, each with a blank before and after it: " and or ". */
int sql_is_one_of(struct token t, const char *words);
/* Returns 1 when it is one of these signs. */
int sql_is_sign(struct token t, const char *signs);
/* Returns 1 when two names are the same, in upper or lower case, quoted or not. */
int sql_same_name(struct token a, struct token b);
/* Returns the ')' that closes the '(' at `t`, or END. */
struct token sql_closing(struct token t);

#endif
