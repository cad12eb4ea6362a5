/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_operand.h - finds operands whose value is a text though no string stands there: '2026-01-31' || ' 12:00', to_char(now(), '...'),
 * CASE ... THEN '2026-01-31' END. SQLite compares such a text with a time as text with number, and each time is then the smaller one.
 *
 *     const char *end = sql_operand_text(sql_after(comparison));    // NULL: it is no such operand
 */
#ifndef PROBING_CONVERTER_SQL_OPERAND_H
#define PROBING_CONVERTER_SQL_OPERAND_H

#include "sql_tokens.h"

/* Returns where the operand that begins at `t` ends (before a further + or -), if its value may be a text; else NULL. */
const char *sql_operand_text(struct token t);
/* Returns whether `t` is a function whose value is a text. */
int sql_operand_gives_text(struct token t);

#endif
