/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_words.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interval.h"
#include "sql_grammar.h"

int sql_words_cast(struct token type, enum sql_kind of, struct token *last, struct sql_cast *c,
                   char *why) {
    int err = sql_cast_to(type, of, last, c);

    if (err)
        snprintf(why, SQL_OUT_WHY,
                 "no type %.*s to cast to: int, double, decimal(10, 2), text, boolean, timestamp, "
                 "date, time, interval, json",
                 (int)(type.n < 40 ? type.n : 40), type.p);
    return err;
}

/* Reads an INTERVAL at `t`: sets *seconds, *months (of whole ones), and *last to its last token. Returns 0, 1 if it is none (a column of that name), or
 * -EINVAL. */
static int interval(struct token t, struct token *last, double *months, double *seconds,
                    char *why) {
    struct token what = sql_after(t), unit = sql_after(what);
    const char *p = what.p;
    size_t n = what.n;

    if (what.kind != STRING && what.kind != NUMBER)
        return 1;
    if (what.kind == STRING && n >= 2) {
        p++;
        n -= 2;
    }
    double scale = unit.kind == WORD ? interval_unit(unit.p, unit.n) : 0;
    *last = what;
    if (scale > 0 && n && strspn(p, "0123456789. ") >= n) {
        char text[64];
        *last = unit;
        snprintf(text, sizeof text, "%.*s %.*s", (int)(n < 32 ? n : 32), p, (int)unit.n, unit.p);
        return interval_split(text, strlen(text), months, seconds);
    }
    if (what.kind == STRING && interval_split(p, n, months, seconds) == 0)
        return 0;
    snprintf(why, SQL_OUT_WHY, "no interval: %.*s (such as INTERVAL '5 minutes', '1 hour 30 min')",
             (int)(what.n < 60 ? what.n : 60), what.p);
    return -EINVAL;
}

/* Writes an INTERVAL, which ends with the token `last`: months that are added to a time, or are the width of bins, are those of the calendar. */
static int put_interval(struct sql_out *w, struct token last, double months, double seconds) {
    struct sql_level *l = &w->level[w->depth];
    char text[64];
    int err = 0;

    snprintf(text, sizeof text, "'%.17g months %.17g s'", months, seconds);
    if (sql_is_one_of(l->name, " date_bin time_bucket date_add date_sub ")) {
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
        fputs(text, w->f);
        return 0;
    }
    if (months != 0 && l->sum && !sql_is_sign(sql_after(last), "*/")) {
        char sum = l->sum;
        err = sql_out_before(w, l->sum_at, l->sum_at + 1, ",");
        if (!err)
            err = sql_out_before(w, l->sum_start, l->sum_start, "date_add(");
        fprintf(w->f, "%s, %c1)", text, sum);
        sql_out_operand(w, l->sum_start, SQL_PLAIN);
    } else {
        sql_out_seconds(w, (months * 30 + trunc(months / 12) * 5) * 86400 + seconds);
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
    }
    w->time = w->time ? SQL_TIME : SQL_PLAIN;
    return err;
}

/* Writes percentile_cont(0.9) WITHIN GROUP (ORDER BY x [DESC]), at its name, as percentile_cont(x, 0.9), and mode() as mode(x). Returns 1 if it is something else. */
static int within_group(struct sql_out *w, struct token name, struct token *last, char *why) {
    struct token open = sql_after(name), close = sql_closing(open), within = sql_after(close);
    struct token list = sql_after(sql_after(within)), x = sql_after(sql_after(sql_after(list))),
                 end = sql_closing(list);
    struct token direction = x;

    if (!sql_is_sign(open, "(") || !sql_is(within, "within") ||
        !sql_is(sql_after(within), "group") || !sql_is_sign(list, "(") ||
        !sql_is(sql_after(list), "order") || end.kind == END)
        return 1;
    for (struct token t = x; t.p < end.p; t = sql_after(t))
        direction = t;
    int desc = sql_is(direction, "desc"), is_mode = sql_is(name, "mode");
    size_t start = sql_out_end(w);
    sql_out_put(w, name);
    fputc('(', w->f);
    int err = sql_out_part(w, x, desc || sql_is(direction, "asc") ? direction : end, why);
    if (!is_mode) {
        fputs(desc ? ", 1 - (" : ", (", w->f);
        if (!err)
            err = sql_out_part(w, sql_after(open), close, why);
        fputc(')', w->f);
    }
    fputc(')', w->f);
    sql_out_operand(w, start, 0);
    *last = end;
    return err;
}

/* Returns whether the last argument is a negative number, as in round(x, -2). */
static int is_negative_last(struct token open) {
    struct token close = sql_closing(open), a = open, b = open, c = open;

    for (struct token t = sql_after(open); t.kind != END && t.p < close.p; t = sql_after(t))
        c = b, b = a, a = t;
    return a.kind == NUMBER && sql_is_sign(b, "-") && sql_is_sign(c, ",");
}

/* Returns whether a number from 0 to 1 is meant by `t`: rand(), or a random() that is multiplied, or compared with a fraction. */
static int is_share(struct token t) {
    struct token open = sql_after(t), close = sql_closing(open), next = sql_after(close);

    if (!sql_is_one_of(t, " random rand ") || !sql_is_sign(open, "(") ||
        sql_after(open).p != close.p)
        return 0;
    if (sql_is(t, "rand") || sql_is_sign(next, "*"))
        return 1;
    if (!sql_is_sign(next, "<>"))
        return 0;
    next = sql_after(next);
    if (sql_is_sign(next, "="))
        next = sql_after(next);
    return next.kind == NUMBER && memchr(next.p, '.', next.n) != NULL;
}

int sql_words_put(struct sql_out *w, struct token t, struct token prev, struct token *last,
                  char *why) {
    static const char *const same[][2] = {{"ilike", "LIKE"},
                                          {"rlike", "REGEXP"},
                                          {"string_agg", "group_concat"},
                                          {"array_agg", "json_group_array"},
                                          {"bool_and", "min"},
                                          {"bool_or", "max"},
                                          {"every", "min"},
                                          {"list", "json_group_array"},
                                          {"list_value", "json_array"},
                                          {"make_array", "json_array"},
                                          {"nvl", "ifnull"},
                                          {"strpos", "instr"},
                                          {"btrim", "trim"},
                                          {"listagg", "group_concat"},
                                          {"mean", "avg"},
                                          {"char_length", "length"},
                                          {"variance", "var_samp"},
                                          {"current_timestamp", "now()"},
                                          {"current_date", "date_trunc('day', now())"},
                                          {"localtimestamp", "now()"}};
    struct token open = sql_after(t), field = sql_after(open);
    struct sql_level *l = &w->level[w->depth];
    double seconds = 0, months = 0;
    int err;

    if ((err = sql_grammar_put(w, t, prev, last, why)) <= 0)
        return err;
    if (sql_is(t, "interval") && (err = interval(t, last, &months, &seconds, why)) <= 0)
        return err ? err : put_interval(w, *last, months, seconds);
    if (sql_is(t, "extract") && sql_is_sign(open, "(") && sql_is(sql_after(field), "from")) {
        size_t start = sql_out_end(w);
        fputs("date_part", w->f);
        sql_out_open(w, t, start);
        fprintf(w->f, "'%.*s',", (int)field.n, field.p);
        *last = sql_after(field);
        return 0;
    }
    if (sql_is_one_of(
            t,
            " mode percentile_cont percentile_disc approx_percentile_cont quantile_cont quantile_disc ") &&
        (err = within_group(w, t, last, why)) <= 0)
        return err;
    if (sql_is_one_of(t, " timestamp timestamptz datetime date time ") && open.kind == STRING &&
        isdigit((unsigned char)open.p[1])) {
        size_t start = sql_out_end(w); /* TIMESTAMP '2026-01-31 12:00:00' */
        fprintf(w->f, "%s%.*s)",
                sql_is(t, "time")   ? "time_of_day("
                : sql_is(t, "date") ? "date_trunc('day', "
                                    : "to_timestamp(",
                (int)open.n, open.p);
        sql_out_operand(w, start,
                        sql_is(t, "time")   ? SQL_CLOCK
                        : sql_is(t, "date") ? SQL_DATE
                                            : SQL_TIME);
        *last = open;
        return 0;
    }
    if (sql_is(t, "as") && sql_is_one_of(l->name, " cast try_cast ") && open.kind == WORD &&
        sql_is_sign(sql_after(sql_type_end(open)), ")")) {
        struct sql_cast c;
        int try = sql_is(l->name, "try_cast");
        if ((err = sql_words_cast(open, w->time, last, &c, why)) < 0)
            return err;
        if (try && sql_cast_try(&c) < 0) {
            snprintf(why, SQL_OUT_WHY,
                     "TRY_CAST is for numbers, texts, truth values, timestamps and dates");
            return -EINVAL;
        }
        l->made = c.kind;
        fputs(c.end, w->f);
        return sql_out_before(w, l->start, l->inside, c.begin);
    }
    if (sql_is(t, "round") && sql_is_sign(open, "(") && is_negative_last(open)) {
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
        fputs("round_to", w->f);
        return 0;
    }
    if (sql_is_one_of(t, " len length ") && sql_is_sign(open, "(") &&
        sql_is_one_of(field, " list array_agg json_group_array ")) {
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN); /* of a list, not of its text */
        fputs("array_length", w->f);
        return 0;
    }
    if (is_share(t)) { /* SQLite's random() is any 64-bit integer */
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
        fputs("(random() / 18446744073709551616.0 + 0.5)", w->f);
        *last = sql_closing(open);
        return 0;
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (sql_is(t, same[i][0]) &&
            (sql_is_sign(open, "(") == !strchr(same[i][1], ')') || i <= 1)) {
            sql_out_operand(w, sql_out_end(w),
                            sql_is(t, "current_date") ? SQL_DATE
                            : strchr(same[i][1], ')') ? SQL_TIME
                                                      : SQL_PLAIN);
            fputs(same[i][1], w->f);
            return 0;
        }
    return 1;
}
