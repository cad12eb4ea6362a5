/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_core.h - finds the clauses of a SELECT in an SQL text, and asks SQLite which columns it has.
 *
 *     struct sql_core c;
 *     sql_core_read(&c, prev, select);                     // c.list, c.body ... are parts of the text
 *     err = sql_core_columns(db, statement, &c, &st); // sqlite3_column_name(st, i)
 */
#ifndef PROBING_CONVERTER_SQL_CORE_H
#define PROBING_CONVERTER_SQL_CORE_H

#include <sqlite3.h>
#include <stdio.h>

#include "sql_tokens.h"

/* A part of an SQL text, [p, end). */
struct sql_span {
    const char *p, *end;
};

/* One SELECT. It ends before the ')', ';' or UNION (EXCEPT, INTERSECT) that follows it, or at the end of the text. A clause that it does
 * not have has p NULL. body, window and limit begin with their keyword, the others after it; body begins with FROM (or WHERE) and ends where the next
 * of these clauses begins. */
struct sql_core {
    const char *begin, *end;
    struct sql_span list, on, body, window, condition, order, limit;
    int distinct; /* SELECT DISTINCT without ON */
    int compound; /* part of a UNION or the like: an ORDER BY or LIMIT after it is the whole compound's */
};

/* Returns the first token at or after p that is neither blank nor comment. */
struct token sql_core_token(const char *p);
/* Reads the SELECT at `select`, which follows the token `prev`. */
void sql_core_read(struct sql_core *c, struct token prev, struct token select);

/* A SELECT that is to be rewritten, the text that it stands in, and where the new text goes. */
struct sql_rewriting {
    FILE *f; /* takes the whole new text */
    sqlite3 *db;
    const char *sql, *statement; /* the whole text; where the SELECT's statement begins */
    struct sql_core core;
    char *why; /* SQL_DIALECT_WHY bytes: a sentence where it cannot be done */
};
/* Has `put` rewrite the SELECTs for which `wanted` returns 1, until none is left; each time the one that ends first, so one within another, or in a WITH
 * before it, is rewritten before that. put returns 0, -ENOMEM, or -EINVAL with a sentence in r->why. *out: the new text, malloc'ed, or NULL if there was
 * no such SELECT. Returns what put returned, or -ENOMEM. */
int sql_core_rewrite(sqlite3 *db, const char *sql, int (*wanted)(const struct sql_core *c),
                     int (*put)(const struct sql_rewriting *r), char **out, char *why);
void sql_core_put(FILE *f, struct sql_span s);
/* Prepares a statement with the columns of the SELECT: *st, for the caller to finalize. statement: where the SELECT's statement begins, whose
 * WITH is used. Returns 0, -ENOMEM, or -EINVAL with the reason in sqlite3_errmsg(db). */
int sql_core_columns(sqlite3 *db, const char *statement, const struct sql_core *c,
                     sqlite3_stmt **st);

#endif
