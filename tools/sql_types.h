/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_types.h - what a cast to a type of another engine is in SQLite, whose own takes any word for a type and makes a number of most.
 *
 *     struct token last;
 *     struct sql_cast c;
 *     if (sql_cast_to(type, SQL_PLAIN, &last, &c) == 0)
 *         printf("%sx%s)", c.begin, c.end);        // round(CAST(x AS REAL), 2)
 */
#ifndef PROBING_TOOLS_SQL_TYPES_H
#define PROBING_TOOLS_SQL_TYPES_H

#include "sql_tokens.h"

/* What is known of an operand: a time in seconds since 1970, one at the beginning of a day (x::date), a time of day as a text. */
enum sql_kind { SQL_PLAIN, SQL_TIME, SQL_DATE, SQL_CLOCK };

struct sql_cast {
    char begin[32], end[32]; /* around the operand; without the last ')' */
    enum sql_kind kind;      /* what comes of it */
    int number;              /* a number comes of it */
};

/* The type at `type`, of an operand of that kind. *last: the type's last token. 0, or -EINVAL: no such type. */
int sql_cast_to(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c);
/* Its last token, whatever it is: "double precision", "numeric(10, 2)", "timestamp with time zone". */
struct token sql_type_end(struct token type);

#endif
