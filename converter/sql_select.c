/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_select.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sql_all.h"
#include "sql_core.h"
#include "sql_star.h"

#define ITEMS 200 /* most items of a list that are read: further ones have no names and no places */

/* An item of a SELECT's list, or of its ORDER BY. */
struct item {
    struct sql_span expression;
    struct token name;       /* name given by AS; kind END: none */
    struct sql_span ordered; /* what follows it, as in DESC NULLS LAST */
};

struct items {
    struct item item[ITEMS];
    size_t n;
};

/* ---- what is in a list ---- */

/* Splits the name off the end of a SELECT's item. */
static void split_name(struct item *item, struct token last, struct token before) {
    static const char no_name[] = " null end isnull notnull true false ";
    static const char wants_more[] =
        " over collate is not in like and or between glob escape case when then else distinct ";

    if ((last.kind != WORD && last.kind != QUOTED) || before.kind == END)
        return;
    if (sql_is(before, "as")) {
        item->name = last;
        item->expression.end = before.p;
    } else if (!sql_is_one_of(last, no_name) && !sql_is_one_of(before, wants_more) &&
               (before.kind != SIGN || *before.p == ')')) {
        item->name = last;
        item->expression.end = last.p;
    }
}

/* Splits DESC and NULLS LAST off the end of an ORDER BY's item. */
static void split_order(struct item *item, const char *end) {
    for (struct token t = sql_core_token(item->expression.p); t.p < end; t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        else if (sql_is_one_of(t, " asc desc ") ||
                 (sql_is(t, "nulls") && sql_is_one_of(sql_after(t), " first last "))) {
            item->expression.end = t.p;
            item->ordered = (struct sql_span){t.p, end};
            return;
        }
    }
}

static void split(struct items *all, struct sql_span list, int order) {
    struct token last = {END, NULL, 0}, before = last;
    const char *begin = list.p;

    all->n = 0;
    if (!list.p)
        return;
    for (struct token t = sql_core_token(list.p); all->n < ITEMS; t = sql_after(t)) {
        int over = t.p >= list.end || t.kind == END;
        if (!over && !sql_is_sign(t, ",")) {
            before = last;
            last = sql_is_sign(t, "(") ? sql_closing(t) : t;
            t = last;
            continue;
        }
        struct item *item = &all->item[all->n++];
        *item = (struct item){.expression = {begin, over ? list.end : t.p}};
        if (order)
            split_order(item, item->expression.end);
        else
            split_name(item, last, before);
        if (over)
            break;
        begin = t.p + 1;
        last = before = (struct token){END, NULL, 0};
    }
}

static int has_star(const struct items *list) {
    for (size_t i = 0; i < list->n; i++)
        for (struct token t = sql_core_token(list->item[i].expression.p);
             t.p < list->item[i].expression.end; t = sql_after(t))
            if (sql_is_sign(t, "*") && sql_after(t).p >= list->item[i].expression.end)
                return 1;
    return 0;
}

/* ---- writing ---- */

/* Writes an expression, with names that the SELECT's list gives replaced by their expressions. */
static void put_expression(FILE *f, struct sql_span s, const struct items *list) {
    struct token prev = {END, NULL, 0}, t;

    for (const char *p = s.p; p < s.end && (t = sql_token(p)).kind != END; p = t.p + t.n) {
        const struct item *is = NULL;
        if ((t.kind == WORD || t.kind == QUOTED) && !sql_is_sign(prev, ".") &&
            !sql_is_sign(sql_after(t), "(."))
            for (size_t i = 0; i < list->n && !is; i++)
                if (list->item[i].name.kind != END && sql_same_name(list->item[i].name, t))
                    is = &list->item[i];
        if (is)
            fputc('(', f);
        sql_core_put(f, is ? is->expression : (struct sql_span){t.p, t.p + t.n});
        if (is)
            fputc(')', f);
        prev = t.kind == SPACE ? prev : t;
    }
}

/* Returns the number that an ORDER BY has in place of an expression, as in ORDER BY 2; 0 if it is an expression. */
static size_t place_of(const struct item *item) {
    struct token t = sql_core_token(item->expression.p);

    return t.kind == NUMBER && sql_after(t).p >= item->expression.end ? strtoul(t.p, NULL, 10) : 0;
}

/* Writes DISTINCT ON as row_number() OVER (...) = 1. Returns 0 or -EINVAL. */
static int put_first_of(FILE *f, const struct sql_core *c, const struct items *list,
                        const struct items *order, char *why) {
    struct items on;

    fputs("row_number() OVER (PARTITION BY ", f);
    split(&on, c->on, 0);
    for (int k = 0; k < 2; k++) {
        const struct items *of = k ? order : &on;
        for (size_t i = 0; i < of->n; i++) {
            size_t place = place_of(&of->item[i]);
            if (place && (place > list->n || has_star(list))) {
                snprintf(why, SQL_DIALECT_WHY, "DISTINCT ON: name the column that is meant by %zu",
                         place);
                return -EINVAL;
            }
            fputs(i ? ", " : k ? " ORDER BY " : "", f);
            if (place)
                sql_core_put(f, list->item[place - 1].expression);
            else
                put_expression(f, of->item[i].expression, list);
            fputc(' ', f);
            sql_core_put(f, of->item[i].ordered);
        }
    }
    fputs(") = 1", f);
    return 0;
}

static void put_name(FILE *f, const char *name) {
    fputc('"', f);
    for (; *name; name++) {
        if (*name == '"')
            fputc('"', f);
        fputc(*name, f);
    }
    fputc('"', f);
}

static int put_core(FILE *f, const struct sql_core *c, sqlite3_stmt *st, struct items *list,
                    struct items *order, char *why) {
    int n = sqlite3_column_count(st);

    split(list, c->list, 0);
    split(order, c->order, 1);
    fputs(c->distinct ? "SELECT DISTINCT " : "SELECT ", f);
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(st, i);
        if (!name)
            return -ENOMEM;
        fprintf(f, "%sc%d AS ", i ? ", " : "", i + 1);
        put_name(f, name);
    }
    fputs(" FROM (WITH q(", f);
    for (int i = 0; i < n; i++)
        fprintf(f, "c%d, ", i + 1);
    fputc('k', f);
    for (size_t i = 0; i < order->n; i++)
        fprintf(f, ", o%zu", i + 1);
    fputs(") AS (SELECT ", f);
    sql_core_put(f, c->list);
    fputs(", (", f);
    int err = 0;
    if (c->on.p)
        err = put_first_of(f, c, list, order, why);
    else
        put_expression(f, c->condition, list);
    fputc(')', f);
    for (size_t i = 0; i < order->n; i++) {
        fputs(", ", f);
        if (place_of(&order->item[i]))
            fputs("NULL", f);
        else
            put_expression(f, order->item[i].expression, list);
    }
    fputc(' ', f);
    sql_core_put(f, c->body);
    fputc(' ', f);
    sql_core_put(f, c->window);
    fputs(") SELECT * FROM q) WHERE k", f);
    for (size_t i = 0; i < order->n; i++) {
        size_t place = place_of(&order->item[i]);
        fputs(i ? ", " : " ORDER BY ", f);
        fprintf(f, place ? "%zu " : "o%zu ", place ? place : i + 1);
        sql_core_put(f, order->item[i].ordered);
    }
    fputc(' ', f);
    sql_core_put(f, c->limit);
    fputc(' ', f);
    return err;
}

/* ---- one after the other ---- */

static int has_choice(const struct sql_core *c) {
    return c->condition.p || c->on.p;
}

/* sql_star() and sql_all(). */
static int without_lists(sqlite3 *db, const char *sql, char **out, char *why) {
    char *all = NULL;
    int err = sql_star(db, sql, out, why);

    if (!err)
        err = sql_all(db, *out ? *out : sql, &all, why);
    if (all || err) {
        free(*out);
        *out = all;
    }
    return err;
}

static int put_choice(const struct sql_rewriting *r) {
    const struct sql_core *c = &r->core;
    struct items *lists = malloc(2 * sizeof *lists);
    sqlite3_stmt *st = NULL;
    int err = lists ? sql_core_columns(r->db, r->statement, c, &st) : -ENOMEM;

    if (err == -EINVAL)
        snprintf(r->why, SQL_DIALECT_WHY, "%s: %s", c->on.p ? "DISTINCT ON" : "QUALIFY",
                 sqlite3_errmsg(r->db));
    if (!err && c->on.p && c->condition.p) {
        snprintf(r->why, SQL_DIALECT_WHY, "DISTINCT ON and QUALIFY: leave out one of them");
        err = -EINVAL;
    }
    if (!err) {
        sql_core_put(r->f, (struct sql_span){r->sql, c->begin});
        err = put_core(r->f, c, st, &lists[0], &lists[1], r->why);
        fputs(c->end, r->f);
    }
    sqlite3_finalize(st);
    free(lists);
    return err;
}

int sql_select(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    char *without;
    int err = without_lists(db, sql, &without, why);

    *out = NULL;
    if (!err)
        err = sql_core_rewrite(db, without ? without : sql, has_choice, put_choice, out, why);
    if (*out || err)
        free(without);
    else
        *out = without;
    return err;
}
