/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_dialect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql_cte.h"
#include "sql_foreign.h"
#include "sql_literal.h"
#include "sql_operand.h"
#include "sql_out.h"
#include "sql_show.h"
#include "sql_words.h"

#define TABLES_MOST 2000 /* SELECT and FROM in a statement: 1 MiB of stack is enough for them */

_Static_assert(SQL_OUT_WHY == SQL_DIALECT_WHY, "they are passed on");

/* Writes x::type as a CAST, at the colons. *last: the type's last token. */
static int cast(struct sql_out *w, struct token colon, struct token *last, char *why) {
    struct token type = sql_after(sql_after(colon));
    struct sql_level *l = &w->level[w->depth];
    struct sql_cast c;
    int err = sql_words_cast(type, w->time, last, &c, why);

    if (!err)
        err = sql_out_before(w, w->operand, w->operand, c.begin);
    if (!err)
        fprintf(w->f, "%s)", c.end);
    w->number = c.number;
    w->time = l->sum == '-' && c.kind ? SQL_PLAIN : l->sum ? l->sum_of : c.kind;
    return err;
}

/* Returns whether what begins at `t` is clearly a date: '2026-01-31', DATE '...', current_date, CAST(x AS DATE), x::date. *end: where it ends. */
static int is_date(struct token t, const char **end) {
    struct token next = sql_after(t), type;

    if (t.kind == STRING && !sql_is_sign(next, ":") && t.n >= 12 && t.p[5] == '-' && t.p[8] == '-')
        ; /* '2026-01-31' */
    else if (sql_is(t, "date") && next.kind == STRING)
        t = next;
    else if (sql_is(t, "cast") && sql_is_sign(next, "(")) {
        struct token close = sql_closing(next), before = next;
        for (struct token k = next; k.p < close.p; k = sql_after(k))
            before = k;
        if (!sql_is(before, "date"))
            return 0;
        t = close;
    } else if (!sql_is(t, "current_date")) {
        t = sql_out_last_name(t);
        next = sql_after(t);
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        else if (sql_is_sign(next, "("))
            t = sql_closing(next);
        next = sql_after(t);
        type = sql_after(sql_after(next));
        if (!sql_is_sign(next, ":") || !sql_is(type, "date"))
            return 0;
        t = type;
    }
    *end = t.p + t.n;
    return 1;
}

/* Converts the last operand, which ends at `end`, to a text if it is a time. */
static int put_as_text(struct sql_out *w, enum sql_kind kind, size_t end) {
    if (!kind || kind == SQL_CLOCK)
        return 0;
    int err = sql_out_before(w, end, end, ") ");
    return err ? err
               : sql_out_before(w, w->operand, w->operand,
                                kind == SQL_DATE ? "date_text(" : "time_text(");
}

static int put_word(struct sql_out *w, struct token t, struct token prev, struct token *last,
                    char *why) {
    struct sql_level *l = &w->level[w->depth];
    struct token next = sql_after(t);
    int err;

    if (sql_is(t, "as") && !sql_is_one_of(l->name, " cast try_cast "))
        sql_out_keep_name(w, next);
    else if (!sql_is_one_of(t, sql_out_no_name) && !sql_is_sign(prev, ".") &&
             (sql_is_sign(next, ",)") || sql_is(next, "from")))
        sql_out_keep_name(w, t);
    err = sql_is_sign(prev, ".") ? 1 : sql_words_put(w, t, prev, last, why);
    if (err <= 0)
        return err;
    if (sql_is_one_of(t, " filter over ")) { /* the value is what is before them */
        w->passed = w->time;
        w->number_passed = w->number;
        w->passed_start = w->operand;
        w->passed_at = t.p;
    }
    if (sql_cte_word(w, t, prev) == 1)
        fputs("main.", w->f);
    if (sql_is(t, "from"))
        sql_cte_item(w);
    if (sql_is_one_of(t, sql_out_no_name) && !sql_is_sign(prev, ".")) {
        enum sql_kind before = sql_is(prev, "not") ? w->before : w->time;
        size_t end = sql_is(prev, "not") ? w->not_at : sql_out_end(w);
        if (sql_is(t, "between")) {
            l->between = before ? 2 : 0;
            l->between_of = before;
        } else if (l->between) {
            l->between = sql_is(t, "and") ? l->between - 1 : 0;
        }
        if (!sql_is_one_of(t, " not distinct from "))
            l->is = sql_is(t, "is") ? before : SQL_PLAIN;
        l->in = sql_is(t, "in") ? before : SQL_PLAIN;
        l->in_number = sql_is(t, "in") && (sql_is(prev, "not") ? w->number_before : w->number);
        w->number_before = w->number;
        if (sql_is_one_of(t, " like glob ") && (err = put_as_text(w, before, end)) < 0)
            return err;
        w->before = w->time;
        w->not_at = end;
        sql_out_no_operand(w);
        l->spoilt = 0;
    } else {
        sql_out_operand(w,
                        sql_is_sign(prev, ".") ? w->operand
                                               : sql_out_end(w) - (size_t)sql_is_sign(prev, ":@$"),
                        sql_out_kind(w, t)); /* s.timestamp, :name */
        w->number |= sql_out_is_number(w, t);
    }
    sql_out_put(w, t);
    if (l->between && sql_is_one_of(t, " between and "))
        sql_out_text_begin(w, next, l->between_of);
    return 0;
}

/* Writes a '(': of what is compared with a time or a number, of FILTER and OVER, and of a WITH. */
static void open_level(struct sql_out *w, struct token t, struct token prev, int named) {
    struct sql_level *l = &w->level[w->depth], pass = {0};

    if (!named && sql_is_sign(prev, "<>=!")) { /* timestamp > ('2026-01-31') */
        l->in = l->compared;
        l->in_number = l->number;
    }
    if (sql_is_one_of(prev, " filter over ") && w->passed_at == prev.p)
        pass = (struct sql_level){.is_pass = 1, .made = w->passed, .numbers = w->number_passed};
    sql_out_open(w, named ? prev : (struct token){END, NULL, 0},
                 pass.is_pass ? w->passed_start
                 : named      ? w->operand
                              : sql_out_end(w));
    l = &w->level[w->depth];
    l->is_pass = pass.is_pass;
    l->made = pass.made;
    l->numbers = pass.numbers;
    sql_cte_open(w, t, prev);
}

/* Begins an element of timestamp IN ('2026-01-31' || ' 12:00', ...) behind the sign at `t`. */
static void put_of_list(struct sql_out *w, struct token t) {
    struct token next = sql_after(t);

    if (!sql_is_one_of(next, " select with values "))
        sql_out_text_begin(w, next, w->level[w->depth].in);
}

/* Begins an operand at `t` that is a text that is made, and is compared with a time behind it: '2026-01-31' || ' 12:00' < timestamp. */
static void put_before_time(struct sql_out *w, struct token t, struct token prev) {
    int starts =
        prev.kind == END || sql_is_sign(prev, "(,") || sql_is_one_of(prev, sql_out_no_name);
    const char *end = starts && (t.kind == STRING || t.kind == WORD || sql_is_sign(t, "(")) &&
                              (sql_is(t, "case") || !sql_is_one_of(t, sql_out_no_name))
                          ? sql_operand_text(t)
                          : NULL;

    if (end)
        sql_out_text_begin(w, t, sql_out_before_time(w, (struct token){STRING, end - 1, 1}));
}

/* Writes x ~ p, x !~ p, x ~* p and x !~* p as x [NOT] REGEXP p. Returns 0, or 1 if it is something else. */
static int put_tilde(struct sql_out *w, struct token t, struct token prev, struct token *last) {
    struct token next = *t.p == '!' ? sql_token(t.p + 1) : t, star = sql_token(next.p + 1);
    int operand = prev.kind == QUOTED || prev.kind == STRING || prev.kind == NUMBER ||
                  sql_is_sign(prev, ")") ||
                  (prev.kind == WORD && !sql_is_one_of(prev, sql_out_no_name));

    if (!sql_is_sign(next, "~") || !operand) /* ~n is an operator of numbers */
        return 1;
    fprintf(w->f, "%s REGEXP ", *t.p == '!' ? " NOT" : "");
    *last = next;
    if (sql_is_sign(star, "*")) {
        fputs("'(?i)' || ", w->f);
        *last = star;
    }
    sql_out_no_operand(w);
    return 0;
}

static int put_sign(struct sql_out *w, struct token t, struct token prev, struct token *last,
                    char *why) {
    struct sql_level *l = &w->level[w->depth];
    int named = (prev.kind == WORD && !sql_is_one_of(prev, sql_out_no_name)) || prev.kind == QUOTED;
    int err = 0;

    *last = t;
    if (strchr("!~", *t.p) && put_tilde(w, t, prev, last) == 0)
        return 0;
    if (*t.p == ':' && t.p[1] == ':' && sql_after(sql_after(t)).kind == WORD)
        return cast(w, t, last, why);
    if (*t.p == '(') {
        open_level(w, t, prev, named);
        put_of_list(w, t);
        return 0;
    }
    if (*t.p == ')') {
        sql_cte_item(w);
        sql_out_close(w);
        return sql_cte_alias(w, t, last);
    }
    if (*t.p == '.') {
        sql_out_put(w, t);
        return 0;
    }
    /* in ts - INTERVAL '5 min' * 2 the sum goes on */
    int goes_on = strchr("*/", *t.p) && l->sum && w->time;
    char sum = goes_on ? l->sum : strchr("+-", *t.p) && w->time ? *t.p : 0;
    if (sum && !goes_on) {
        l->sum_start = l->sum ? l->sum_start : w->operand;
        l->sum_of = w->time;
        l->sum_at = sql_out_end(w);
        if (sum == '-' && w->time == SQL_DATE && is_date(sql_after(t), &w->days_end))
            err = sql_out_before(w, l->sum_start, l->sum_start, "((");
    }
    if (strchr("<>=!", *t.p) && !sql_is_sign(prev, "<>=!")) {
        if (sql_is_sign(prev, ")") && sql_out_before_time(w, prev))
            err = sql_out_text_before(w, sql_out_end(w));
        l->compared = w->time;
        l->number = w->number;
    }
    sql_out_put(w, t);
    if (strchr("<>=", *t.p) && !sql_is_sign(sql_after(t), "<>=") &&
        sql_out_text_begin(w, sql_after(t), l->compared))
        l->compared = SQL_PLAIN;
    if (*t.p == ',') {
        sql_cte_item(w);
        l->one_of = sql_out_argument(w);
        l->numbers |= w->number;
    }
    l->spoilt = *t.p == ',' || *t.p == ';' ? 0 : l->spoilt || !(sum || *t.p == '+');
    l->commas += *t.p == ',';
    sql_out_no_operand(w);
    l->sum = sum;
    l->arithmetic = strchr("+-*/%", *t.p) != NULL;
    if (*t.p == ',')
        put_of_list(w, t);
    return err;
}

static int put_token(struct sql_out *w, struct token t, struct token prev, int begins,
                     struct token *last, char *why) {
    struct token table;
    const char *instead = begins && t.kind == WORD ? sql_show(t, last, &table) : NULL;
    int err;

    if (instead) {
        fputs(instead, w->f);
        if (table.p)
            sql_show_table(w->f, table);
        return 0;
    }
    *last = t;
    if (begins && sql_is_one_of(t, " show describe desc ")) {
        snprintf(why, SQL_DIALECT_WHY,
                 "SHOW TABLES, VIEWS, SCHEMAS, ALL, COLUMNS FROM t, and DESCRIBE t are known");
        return -EINVAL;
    }
    if ((err = sql_foreign(t, prev, begins, why, SQL_DIALECT_WHY)) < 0)
        return err;
    if (t.kind == STRING)
        return sql_literal_text(w, t, prev, why);
    if (t.kind == WORD)
        return put_word(w, t, prev, last, why);
    if (t.kind != SIGN)
        return sql_literal_other(w, t, prev, why);
    err = *t.p == '$' ? sql_literal_dollars(w, t, last) : 1;
    return err <= 0 ? err : put_sign(w, t, prev, last, why);
}

static int dialect(const char *sql, struct sql_names *names, char **out, char *why);

/* Translates a part of a statement, once: parts lie within each other, and each one that is read twice would double the time of those in it. */
static int part(const char *sql, char **out, char *why) {
    struct sql_names names = {.n = 0};

    return dialect(sql, &names, out, why);
}

static int dialect(const char *sql, struct sql_names *names, char **out, char *why) {
    struct token t, prev = {END, NULL, 0};
    struct sql_out w = {.dialect = part, .text = out, .names = names};
    int begins = 1, err = 0; /* begins: of a statement */
    size_t size;

    *out = NULL;
    w.f = open_memstream(out, &size);
    if (!w.f)
        return -ENOMEM;
    for (const char *p = sql; !err && (t = sql_token(p)).kind != END; p = t.p + t.n) {
        struct token last = t;
        if (t.kind == SPACE) {
            sql_out_put(&w, t);
            continue;
        }
        put_before_time(&w, t, prev);
        err = put_token(&w, t, prev, begins, &last, why);
        if (w.days_end && last.p + last.n >= w.days_end) {
            fputs(") / 86400)", w.f);
            w.days_end = NULL;
            w.time = SQL_PLAIN;
        }
        if (!err)
            sql_out_text_end(&w, last.p + last.n);
        begins = t.kind == SIGN && *t.p == ';';
        if (begins)
            w.depth = 0, w.level[0] = (struct sql_level){0}, w.time = SQL_PLAIN, w.recursive = 0;
        prev = t = last;
    }
    if (ferror(w.f) && !err)
        err = -ENOMEM;
    if (fclose(w.f) != 0 && !err)
        err = -ENOMEM;
    if (err) {
        free(*out);
        *out = NULL;
    }
    return err;
}

/* Returns the largest number of parentheses that are open at once. */
static int depth_of(const char *sql) {
    int depth = 0, most = 0;

    for (struct token t = sql_token(sql); t.kind != END; t = sql_after(t)) {
        depth += sql_is_sign(t, "(") - (depth && sql_is_sign(t, ")"));
        most = depth > most ? depth : most;
    }
    return most;
}

/*
 * Returns the largest number of SELECT and FROM in a statement. SQLite calls itself for each table of WITH that another one reads: some
 * thousands of them in a row overflow the stack of a thread.
 */
static int tables_of(const char *sql) {
    int n = 0, most = 0;

    for (struct token t = sql_token(sql); t.kind != END; t = sql_after(t)) {
        n = sql_is_sign(t, ";") ? 0 : n + (sql_is(t, "select") || sql_is(t, "from"));
        most = n > most ? n : most;
    }
    return most;
}

int sql_dialect(const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    struct sql_names names = {.n = 0};

    *out = NULL;
    if (strncmp(sql, "\xef\xbb\xbf", 3) ==
        0) /* a byte order mark would be part of the first word */
        sql += 3;
    if (depth_of(sql) >= SQL_OUT_DEPTH) { /* SQLite before 3.46 parses no more, either */
        snprintf(why, SQL_DIALECT_WHY, "more than %d parentheses lie within each other",
                 SQL_OUT_DEPTH - 1);
        return -EINVAL;
    }
    if (tables_of(sql) > TABLES_MOST) {
        snprintf(why, SQL_DIALECT_WHY, "more than %d SELECT and FROM in one statement",
                 TABLES_MOST);
        return -EINVAL;
    }
    int err = dialect(sql, &names, out, why);

    if (!err && names.n) { /* once more: a name may be used before the place that gives it */
        free(*out);
        err = dialect(sql, &names, out, why);
    }
    return err;
}
