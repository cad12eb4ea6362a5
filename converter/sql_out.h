/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_out.h - the text that sql_dialect() has written so far, and what it knows about it: where the last operand begins, and whether that is a time.
 *
 *     struct sql_out w = {.f = open_memstream(&text, &size), .text = &text, .names = &names};
 *     sql_out_operand(&w, sql_out_end(&w), sql_out_kind(&w, token));
 *     sql_out_put(&w, token);
 *     sql_out_before(&w, w.operand, w.operand, "to_timestamp(");
 */
#ifndef PROBING_CONVERTER_SQL_OUT_H
#define PROBING_CONVERTER_SQL_OUT_H

#include <stdio.h>

#include "sql_types.h"

#define SQL_OUT_DEPTH 100 /* levels: the statement's, and one for each open parenthesis */

/* State within a pair of parentheses; level 0 is the statement outside of all. */
struct sql_level {
    struct token name;    /* name of the function that is called; kind END: none */
    size_t start, inside; /* offsets in the text: of the name, or else of the '('; after the '(' */
    int commas;
    enum sql_kind made;       /* in CAST(x AS TIMESTAMP): kind of its result */
    char sum;                 /* last operator, '+' or '-', if a time stands before it; else 0 */
    enum sql_kind sum_of;     /* kind of that operand */
    size_t sum_start, sum_at; /* offsets where the sum begins, and of its last operator */
    enum sql_kind compared;   /* kind of the operand before the comparison */
    int between;              /* 2 after the BETWEEN of a time, 1 after its AND, else 0 */
    enum sql_kind between_of; /* kind of the operand before BETWEEN */
    enum sql_kind is;         /* after IS: kind of the operand before it */
    enum sql_kind in;         /* within IN (...): kind of the operand before IN */
    int number,
        in_number;        /* whether the operand before the comparison, or before IN, is a number */
    int is_list;          /* 1 in the parentheses of that IN, or within them */
    enum sql_kind one_of; /* in coalesce(...) and the like: kind of the arguments so far */
    int numbers;          /* whether one of the arguments so far is a number */
    int arithmetic;       /* 1 after + - * / %: the result is a number, unless it is a time */
    int spoilt;           /* 1 after an operator whose result is not a time */
    int is_pass;          /* in FILTER (...) and OVER (...): the value before them is the result */
    int is_table;         /* whether a table may stand in place of these parentheses */
    int limited;          /* 1 after LIMIT or OFFSET */
    const char *
        text_end; /* of an operand that is made a time as it may be a text: where it ends in the input; else NULL */
    size_t text_start; /* and where it begins in the text */
    struct token
        own; /* name of the WITH whose SELECT this is, and that may read a table of that name; else kind END */
    struct token
        column; /* name that WITH a(x, y) AS (SELECT ...) gives to the next column; else kind END */
};

#define SQL_OUT_NAMES 64
/* Names that the text gives to times, and (kind SQL_PLAIN) to numbers: SELECT max(timestamp) AS m, count(*) AS n. */
struct sql_names {
    struct token name[SQL_OUT_NAMES];
    enum sql_kind kind[SQL_OUT_NAMES];
    size_t n;
};

#define SQL_OUT_WHY 200

struct sql_out {
    int (*dialect)(const char *sql, char **out, char *why); /* translates a part of the text */
    FILE *f;
    char **text; /* the text in f, after fflush() */
    struct sql_level level[SQL_OUT_DEPTH];
    int depth;
    size_t operand;          /* where the last operand starts in the text */
    enum sql_kind time;      /* kind of the last operand */
    int number;              /* whether it is a number (sql_out_is_number) */
    struct sql_names *names; /* names of times found so far */
    const char *days_end;    /* in date - date: where the second one ends in the input; else NULL */
    enum sql_kind before;    /* kind of the operand before the last keyword (for x NOT IN), */
    int number_before;       /* whether that operand is a number, */
    size_t not_at;           /* offset of that keyword, or of a NOT before it */
    struct token cte,
        cte_column; /* the WITH whose SELECT begins at the '(' at cte_body, and its first column's name; else kind END */
    const char *cte_body;
    int recursive;         /* 1 after WITH RECURSIVE */
    const char *passed_at; /* the last FILTER or OVER, and before it: */
    enum sql_kind passed;  /* kind of the operand, */
    int number_passed;     /* whether it is a number, */
    size_t passed_start;   /* and where it begins */
};

/* Words that are neither operands nor functions, though a '(' or an operand may follow; functions that return a time;
 * functions that return one of their arguments. */
extern const char sql_out_no_name[], sql_out_gives_time[], sql_out_picks[];

size_t sql_out_end(struct sql_out *w);
/* Replaces the bytes [from, to) of the text written by `words`, and by blanks if those are fewer. Returns 0 or -ENOMEM. */
int sql_out_before(struct sql_out *w, size_t from, size_t to, const char *words);
void sql_out_put(struct sql_out *w, struct token t);
/* Writes the tokens from `from` to before `to`, translated. Returns 0 or -errno, with a sentence in `why` for -EINVAL. */
int sql_out_part(struct sql_out *w, struct token from, struct token to, char *why);
/* Writes a length of time. */
void sql_out_seconds(struct sql_out *w, double seconds);
/* Returns the kind of `t` if it names a column of times in the views, or is a name that the text gives to a time; else SQL_PLAIN. */
enum sql_kind sql_out_kind(const struct sql_out *w, struct token t);
/* Returns whether `t` names a column of numbers in the views, or is a name that the text gives to a number. Some views declare no type for such a column,
 * and results of functions have no type, so that SQLite finds no row when such a number is compared with the text '3'. */
int sql_out_is_number(const struct sql_out *w, struct token t);
/* Notes that the text gives the last operand, if it is a time or a number, the name `t`. */
void sql_out_keep_name(struct sql_out *w, struct token t);
/* Returns the last name of the chain (s.timestamp) that begins at `t`. */
struct token sql_out_last_name(struct token t);
/* Returns the kind of the time that the string at `t` is compared with, if that follows the string; else SQL_PLAIN. */
enum sql_kind sql_out_before_time(const struct sql_out *w, struct token t);
/* Notes that the last operand is of this kind, and starts at the offset `start`. */
void sql_out_operand(struct sql_out *w, size_t start, enum sql_kind kind);
/* Notes an operator or a keyword, which ends the operand before it. */
void sql_out_no_operand(struct sql_out *w);
/* Begins, at the operand that begins at `t` and is compared with a time of this kind, its conversion to a time, if it may be a text; returns whether. And
 * ends it, behind the token that ends at `end`. */
int sql_out_text_begin(struct sql_out *w, struct token t, enum sql_kind kind);
void sql_out_text_end(struct sql_out *w, const char *end);
/* Converts the last operand, which ends at the offset `end`, to a time if it is of a function whose value is a text. Returns 0 or -ENOMEM. */
int sql_out_text_before(struct sql_out *w, size_t end);
/* Returns the kind of the argument, or of the expression in parentheses, that ends here. */
enum sql_kind sql_out_argument(const struct sql_out *w);
/* Write a '(', which begins a level, and a ')', which ends it. name: the function's before the '(' (kind END: none); start: offset of the first of both. */
void sql_out_open(struct sql_out *w, struct token name, size_t start);
void sql_out_close(struct sql_out *w);

#endif
