/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_tokens.h - the tokens of an SQL text.
 *
 *     for (struct token t = sql_token(sql); t.kind != END; t = sql_after(t))
 *         if (sql_is(t, "select")) ...
 *
 * Any text has tokens: a quote that is never closed goes to the end of it.
 */
#ifndef PROBING_TOOLS_SQL_TOKENS_H
#define PROBING_TOOLS_SQL_TOKENS_H

#include <stddef.h>

enum kind { END, SPACE, WORD, NUMBER, STRING, QUOTED, SIGN };
struct token {
    enum kind kind;
    const char *p;
    size_t n;
};

/* The token at p; blanks and comments are one each (SPACE), and each sign is one. */
struct token sql_token(const char *p);
/* The next one after `t` that is neither blank nor comment. */
struct token sql_after(struct token t);
/* Whether it is that word, whatever its case. */
int sql_is(struct token t, const char *word);
/* One of several, with a blank before and behind each: " and or ". */
int sql_is_one_of(struct token t, const char *words);
/* One of these signs. */
int sql_is_sign(struct token t, const char *signs);
/* The ')' of the '(' at `t`, or END. */
struct token sql_closing(struct token t);

#endif
