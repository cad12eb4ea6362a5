/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_out.h - the text that sql_dialect() writes, and what is known of it: where the last operand begins, and whether that is a time.
 *
 *     struct sql_out w = {.f = open_memstream(&text, &size), .text = &text, .names = &names};
 *     sql_out_operand(&w, sql_out_end(&w), sql_out_kind(&w, token));
 *     sql_out_put(&w, token);
 *     sql_out_before(&w, w.operand, w.operand, "to_timestamp(");
 */
#ifndef PROBING_TOOLS_SQL_OUT_H
#define PROBING_TOOLS_SQL_OUT_H

#include <stdio.h>

#include "sql_types.h"

#define SQL_OUT_DEPTH 100 /* of parentheses; what lies deeper stays as it is */

/* Within a pair of parentheses, or the statement. */
struct sql_level {
    struct token name;    /* of the function, else END */
    size_t start, inside; /* in the text written: of the name, else of the '('; after the '(' */
    int commas;
    enum sql_kind made;       /* CAST(x AS TIMESTAMP) */
    char sum;                 /* + or -: the operand before it is a time */
    enum sql_kind sum_of;     /* of which kind, */
    size_t sum_start;         /* and where it starts */
    enum sql_kind compared;   /* what stands before the comparison */
    int between;              /* BETWEEN: 2, then 1 behind its AND, then 0 */
    enum sql_kind between_of; /* what stands before it */
    enum sql_kind in;         /* within IN (...): what stands before it */
    int number,
        in_number; /* what stands before the comparison, or before IN, is a column of numbers */
    enum sql_kind one_of; /* of coalesce(...): of the arguments so far */
    int spoilt;           /* by an operator that makes no time of one */
};

#define SQL_OUT_NAMES 32
/* What a SELECT calls a time: SELECT max(timestamp) AS m. */
struct sql_names {
    struct token name[SQL_OUT_NAMES];
    enum sql_kind kind[SQL_OUT_NAMES];
    size_t n;
};

#define SQL_OUT_WHY 200

struct sql_out {
    int (*dialect)(const char *sql, char **out,
                   char *why); /* sql_dialect(), for a part of a text */
    FILE *f;
    char **text; /* the text in f, after fflush() */
    struct sql_level level[SQL_OUT_DEPTH];
    int depth;
    size_t operand;          /* where the last operand starts in the text */
    enum sql_kind time;      /* what it is */
    int number;              /* a column of numbers (sql_out_is_number) */
    struct sql_names *names; /* those that were found */
    const char *days_end;    /* behind a date that another one is subtracted by: where it ends */
    enum sql_kind before;    /* of NOT: what stands before it, */
    int number_before;       /* and whether that is a column of numbers, */
    size_t not_at;           /* and where it is */
};

/* What is no operand and no function's name, though a '(' or an operand may follow; functions that give a time, or one of their arguments. */
extern const char sql_out_no_name[], sql_out_gives_time[], sql_out_picks[];

size_t sql_out_end(struct sql_out *w);
/* `words` in the place of what is written from `from` to `to`. 0 or -ENOMEM */
int sql_out_before(struct sql_out *w, size_t from, size_t to, const char *words);
void sql_out_put(struct sql_out *w, struct token t);
/* A column that the views have times in, or what this text calls one. */
enum sql_kind sql_out_kind(const struct sql_out *w, struct token t);
/* A column of the views that is a number, though some of them do not declare it as one: SQLite finds none that is '3' in it. */
int sql_out_is_number(struct token t);
/* The operand that is written is called `t`. */
void sql_out_keep_name(struct sql_out *w, struct token t);
/* The last name of a chain (s.timestamp) that begins at `t`. */
struct token sql_out_last_name(struct token t);
/* What the text at `t` is compared with that stands behind it. */
enum sql_kind sql_out_before_time(const struct sql_out *w, struct token t);
/* Notes that an operand was written, which starts at `start`. */
void sql_out_operand(struct sql_out *w, size_t start, enum sql_kind kind);
/* An operator or a keyword: it is over. */
void sql_out_no_operand(struct sql_out *w);
/* An argument, or what stands in parentheses, is over: what it is. */
enum sql_kind sql_out_argument(const struct sql_out *w);
/* A '(', behind a function's name or not (END), and a ')'. */
void sql_out_open(struct sql_out *w, struct token name, size_t start);
void sql_out_close(struct sql_out *w);

#endif
