/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_literal.h - writes the literals of a statement for sql_dialect(): strings, numbers, $$texts$$, and names in quotes.
 *
 *     err = sql_literal_text(&w, token, prev, why);   // '2026-01-31' behind "timestamp > ": to_timestamp('2026-01-31')
 */
#ifndef PROBING_CONVERTER_SQL_LITERAL_H
#define PROBING_CONVERTER_SQL_LITERAL_H

#include "sql_out.h"

/* Writes a string: as a number where it is compared with a column of numbers, as a time where it is compared with a time, and as a duration where
 * it is added to a time. `prev` is the token before it. Returns 0 or -errno with `why`, as does sql_literal_other(). */
int sql_literal_text(struct sql_out *w, struct token t, struct token prev, char *why);
/* Writes PostgreSQL's $$text$$ at `t`, which SQLite takes for the name of a parameter, as a string. Returns 0, or 1 if it is something else. */
int sql_literal_dollars(struct sql_out *w, struct token t, struct token *last);
/* Writes a number, or a name in quotes. */
int sql_literal_other(struct sql_out *w, struct token t, struct token prev, char *why);

#endif
