/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_types.h - translates casts to the types of other engines. SQLite's own CAST accepts any word as a type, and for most converts to a number.
 *
 *     struct token last;
 *     struct sql_cast c;
 *     if (sql_cast_to(type, SQL_PLAIN, &last, &c) == 0)
 *         printf("%sx%s)", c.begin, c.end);        // numeric(10, 2): round_to(CAST(x AS NUMERIC), 2)
 */
#ifndef PROBING_CONVERTER_SQL_TYPES_H
#define PROBING_CONVERTER_SQL_TYPES_H

#include "sql_tokens.h"

/* Kind of an operand: a time in seconds since 1970, such a time at the beginning of a day (x::date), a time of day as a text; PLAIN: anything else. */
enum sql_kind { SQL_PLAIN, SQL_TIME, SQL_DATE, SQL_CLOCK };

struct sql_cast {
    char begin[48], end[32]; /* text before and after the operand, without the last ')' */
    enum sql_kind kind;      /* kind of the result */
    int number;              /* 1: the result is a number */
};

/* Translates the cast of an operand of kind `of` to the type at `type`. *last: the type's last token. Returns 0, or -EINVAL for an unknown type. */
int sql_cast_to(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c);
/* Makes the cast one that gives NULL for what cannot be cast (TRY_CAST). Returns 0, or -EINVAL for a type that has no such cast. */
int sql_cast_try(struct sql_cast *c);
/* Returns the last token of the type at `type`, known or not: "double precision", "numeric(10, 2)", "timestamp with time zone". */
struct token sql_type_end(struct token type);

#endif
