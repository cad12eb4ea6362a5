/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_core.h - the clauses of a SELECT in an SQL text, and which columns it has.
 *
 *     struct sql_core c;
 *     sql_core_read(&c, prev, select);                     // c.list, c.body ... are parts of the text
 *     err = sql_core_columns(db, statement, &c, &st); // sqlite3_column_name(st, i)
 */
#ifndef PROBING_TOOLS_SQL_CORE_H
#define PROBING_TOOLS_SQL_CORE_H

#include <sqlite3.h>
#include <stdio.h>

#include "sql_tokens.h"

/* From `p` to before `end`. */
struct sql_span {
    const char *p, *end;
};

/* One SELECT, up to what follows it: ')', ';', UNION and the like, or the end. A span whose p is NULL: it has no such clause. */
struct sql_core {
    const char *begin, *end;
    struct sql_span list, on, body, window, condition, order, limit;
    int distinct; /* SELECT DISTINCT, of whole rows */
    int compound; /* part of a UNION or the like: ORDER BY and LIMIT after it are not its own */
};

/* The first token at or behind p that is no blank. */
struct token sql_core_token(const char *p);
/* Reads the SELECT at `select`, which follows the token `prev`. */
void sql_core_read(struct sql_core *c, struct token prev, struct token select);
void sql_core_put(FILE *f, struct sql_span s);
/* A statement that has its columns; `statement`: the text from where the statement begins. 0; -ENOMEM; -EINVAL, and SQLite's message is with `db`. */
int sql_core_columns(sqlite3 *db, const char *statement, const struct sql_core *c,
                     sqlite3_stmt **st);

#endif
