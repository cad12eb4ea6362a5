/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_cte.h - translates what lies in the names that a statement gives to SELECTs, for sql_dialect.h.
 *
 *     WITH steps AS (SELECT * FROM steps WHERE rank = 0)      the table of that name is meant: main.steps (SQLite: circular reference)
 *     WITH a(t) AS (SELECT timestamp ...)                     t is a time
 *     FROM (SELECT ...) AS a(x, y)                            FROM (WITH a(x, y) AS (SELECT ...) SELECT * FROM a) AS a
 *     FROM generate_series(1, 3) AS s(x)                      FROM (WITH s(x) AS (SELECT value FROM generate_series(1, 3)) ...) AS s
 *
 *     sql_cte_word(&out, token, prev);        // at each name, before it is written
 *     sql_cte_open(&out, token, prev);        // after each '('
 *     sql_cte_item(&out);                     // at each ',' and ')', and at FROM
 *     err = sql_cte_alias(&out, token, &last);// after each ')'
 */
#ifndef PROBING_CONVERTER_SQL_CTE_H
#define PROBING_CONVERTER_SQL_CTE_H

#include "sql_out.h"

/* Notes a WITH that begins at the name `t`. Returns 1 if `t` is a table of the database, within the SELECT of a WITH that has the same name; else 0. */
int sql_cte_word(struct sql_out *w, struct token t, struct token prev);
/* Notes which WITH the '(' at `t` belongs to, and the names that follow its ')'. */
void sql_cte_open(struct sql_out *w, struct token t, struct token prev);
/* Notes that an item of a SELECT's list ends, and with it the last operand has the next one of the names given by the WITH. */
void sql_cte_item(struct sql_out *w);
/* Writes the name and the columns that follow the ')' at `t`, which was written. *last: their last token. Returns 0 or -ENOMEM. */
int sql_cte_alias(struct sql_out *w, struct token t, struct token *last);

#endif
