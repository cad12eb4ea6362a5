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

/* One SELECT, up to what follows it: ')', ';', UNION and its like, or the end. p NULL: it has no such clause. */
struct sql_core {
    const char *begin, *end;
    struct sql_span list, on, body, window, condition, order, limit;
    int distinct; /* all of a row */
    int compound; /* ORDER BY and LIMIT behind it are not its own */
};

/* The first token at or behind p that is no blank. */
struct token sql_core_token(const char *p);
/* Reads the SELECT at `select`, which `prev` stands before. */
void sql_core_read(struct sql_core *c, struct token prev, struct token select);
void sql_core_put(FILE *f, struct sql_span s);
/* A statement that has its columns; `statement`: the text from where the statement begins. 0; -ENOMEM; -EINVAL, and SQLite's message is with `db`. */
int sql_core_columns(sqlite3 *db, const char *statement, const struct sql_core *c,
                     sqlite3_stmt **st);

#endif
