/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *names, *begin, *end;
    enum sql_kind kind;
    int number;
} types[] = {
    {" int integer bigint smallint tinyint hugeint mediumint signed unsigned int1 int2 int4 int8 int16 int32 int64 uint8 uint16 uint32"
     " uint64 ubigint uinteger usmallint utinyint long short byte oid ",
     "CAST(as_int(", ") AS INTEGER", SQL_PLAIN, 1},
    {" real float double float4 float8 float32 float64 ", "CAST(as_number(", ") AS REAL", SQL_PLAIN,
     1},
    {" numeric decimal dec number ", "CAST(as_number(", ") AS NUMERIC", SQL_PLAIN, 1},
    {" text varchar char character string str bpchar name nvarchar nchar utf8 clob ", "CAST(",
     " AS TEXT", SQL_PLAIN, 0},
    {" boolean bool logical ", "to_boolean(", "", SQL_PLAIN, 0},
    {" timestamp timestamptz datetime timestamp_s timestamp_ms timestamp_us timestamp_ns ",
     "to_timestamp(", "", SQL_TIME, 0},
    {" date date32 ", "date_trunc('day', ", "", SQL_DATE, 0},
    {" time timetz ", "time_of_day(", "", SQL_CLOCK, 0},
    {" interval ", "interval(", "", SQL_PLAIN, 0},
    {" json jsonb ", "json(", "", SQL_PLAIN, 0},
    {" blob bytea binary varbinary bytes ", "CAST(", " AS BLOB", SQL_PLAIN, 0},
};

struct token sql_type_end(struct token t) {
    struct token next = sql_after(t);

    while (sql_is_one_of(next, " precision varying with without time zone unsigned signed ") ||
           sql_is_sign(next, "(")) {
        t = sql_is_sign(next, "(") ? sql_closing(next) : next;
        next = sql_after(t);
    }
    return t;
}

/* Returns the decimal places of a type: 2 for numeric(10, 2), 0 for numeric(10), -1 for numeric. */
static int places(struct token type) {
    struct token open = sql_after(type), comma = sql_after(sql_after(open)),
                 scale = sql_after(comma);

    if (!sql_is_sign(open, "("))
        return -1;
    return sql_is_sign(comma, ",") && scale.kind == NUMBER ? atoi(scale.p) % 100 : 0;
}

int sql_cast_try(struct sql_cast *c) {
    static const char *const tries[][2] = {
        {"as_", "try_"},
        {"to_", "try_"},
        {"date_trunc('day', ", "date_trunc('day', try_timestamp("}};
    char old[sizeof c->begin];

    strcpy(old, c->begin);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char *at = strstr(old, tries[i][0]);
        if (!at || (i == 1 && at != old)) /* round_to() is none */
            continue;
        snprintf(c->begin, sizeof c->begin, "%.*s%s%s", (int)(at - old), old, tries[i][1],
                 at + strlen(tries[i][0]));
        strcat(c->end, i == 2 ? ")" : "");
        return 0;
    }
    return strstr(c->end, "TEXT") ? 0 : -EINVAL;
}

int sql_cast_to(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c) {
    size_t i = 0;

    *last = sql_type_end(type);
    while (i < sizeof types / sizeof *types && !sql_is_one_of(type, types[i].names))
        i++;
    if (i == sizeof types / sizeof *types)
        return -EINVAL;
    *c = (struct sql_cast){.kind = types[i].kind, .number = types[i].number};
    snprintf(c->begin, sizeof c->begin, "%s", types[i].begin);
    snprintf(c->end, sizeof c->end, "%s", types[i].end);
    if (strstr(c->end, "NUMERIC") && places(type) >= 0) {
        snprintf(c->begin, sizeof c->begin, "round_to(CAST(as_number(");
        snprintf(c->end, sizeof c->end, ") AS NUMERIC), %d", places(type));
    } else if (strstr(c->end, "TEXT") && (of == SQL_TIME || of == SQL_DATE)) {
        snprintf(c->begin, sizeof c->begin, of == SQL_TIME ? "time_text(" : "date_text(");
        c->end[0] = 0;
    }
    return 0;
}
