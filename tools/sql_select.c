/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_select.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sql_tokens.h"

#define ITEMS 200 /* of a list; of one with more the rest has no names and no places */

/* From `p` to before `end`. */
struct span {
    const char *p, *end;
};

/* One SELECT, up to what follows it: ')', ';', UNION and its like, or the end. p NULL: it has no such clause. */
struct core {
    const char *begin, *end;
    struct span list, on, body, window, condition, order, limit;
    int distinct; /* all of a row */
    int compound; /* ORDER BY and LIMIT behind it are not its own */
};

/* What a SELECT gives, and what is ordered by. */
struct item {
    struct span expression;
    struct token name;   /* given by AS; else END */
    struct span ordered; /* what stands behind it: DESC NULLS LAST */
};

struct items {
    struct item item[ITEMS];
    size_t n;
};

static struct token token_at(const char *p) {
    struct token t = sql_token(p);

    return t.kind == SPACE ? sql_after(t) : t;
}

static int is_end(struct token t) {
    return t.kind == END || sql_is_sign(t, ");");
}

/* ---- where its clauses are ---- */

/* The clause that begins at `t`, behind `prev`; NULL: none does. *first: what it has begins behind that token. */
static struct span *clause_at(struct core *c, struct token prev, struct token t,
                              struct token *first) {
    struct token next = sql_after(t);

    *first = t;
    if (t.kind != WORD || sql_is_sign(prev, ".") || sql_is_one_of(prev, " as distinct "))
        return NULL;
    if (sql_is(t, "qualify"))
        return c->body.p && !sql_is_sign(next, ",.=<>") && !is_end(next) ? &c->condition : NULL;
    if (sql_is(t, "order") && sql_is(next, "by")) {
        *first = next;
        return &c->order;
    }
    if (sql_is(t, "window"))
        return sql_is(sql_after(next), "as") ? &c->window : NULL;
    if (sql_is(t, "limit"))
        return &c->limit;
    if (sql_is(t, "from") || (!c->body.p && sql_is(t, "where")))
        return c->body.p ? NULL : &c->body;
    return NULL;
}

/* Reads the SELECT at `select`, which `prev` stands before. */
static void read_core(struct core *c, struct token prev, struct token select) {
    struct token t = sql_after(select), first;
    struct span *open = &c->list;

    *c = (struct core){.begin = select.p,
                       .compound = sql_is_one_of(prev, " union all except intersect ")};
    if (sql_is(t, "distinct") && sql_is(sql_after(t), "on") &&
        sql_is_sign(sql_after(sql_after(t)), "(")) {
        struct token bracket = sql_after(sql_after(t)), close = sql_closing(bracket);
        c->on = (struct span){bracket.p + 1, close.p};
        t = sql_after(close);
    } else if (sql_is_one_of(t, " distinct all ")) {
        c->distinct = sql_is(t, "distinct");
        t = sql_after(t);
    }
    open->p = t.p;
    for (prev = select; !is_end(t) && !sql_is_one_of(t, " union except intersect ");
         prev = t, t = sql_after(t)) {
        if (sql_is_sign(t, "(")) {
            t = sql_closing(t);
            if (t.kind == END)
                break;
            continue;
        }
        struct span *next = clause_at(c, prev, t, &first);
        if (!next || next->p)
            continue;
        open->end = t.p;
        open = next;
        next->p =
            next == &c->body || next == &c->window || next == &c->limit ? t.p : first.p + first.n;
        t = first;
    }
    open->end = c->end = t.p;
    c->compound |= sql_is_one_of(t, " union except intersect ");
    if (c->compound && c->order.p) { /* they are behind all of them */
        c->end = c->order.p;
        while (strncasecmp(c->end, "order", 5) != 0)
            c->end--;
    } else if (c->compound && c->limit.p) {
        c->end = c->limit.p;
    }
    if (c->compound)
        c->order = c->limit = (struct span){NULL, NULL};
}

/* ---- what is in a list ---- */

/* The name that an item of a SELECT ends in. */
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

/* DESC, NULLS LAST. */
static void split_order(struct item *item, const char *end) {
    for (struct token t = token_at(item->expression.p); t.p < end; t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        else if (sql_is_one_of(t, " asc desc ") ||
                 (sql_is(t, "nulls") && sql_is_one_of(sql_after(t), " first last "))) {
            item->expression.end = t.p;
            item->ordered = (struct span){t.p, end};
            return;
        }
    }
}

static void split(struct items *all, struct span list, int order) {
    struct token last = {END, NULL, 0}, before = last;
    const char *begin = list.p;

    all->n = 0;
    if (!list.p)
        return;
    for (struct token t = token_at(list.p); all->n < ITEMS; t = sql_after(t)) {
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
        for (struct token t = token_at(list->item[i].expression.p);
             t.p < list->item[i].expression.end; t = sql_after(t))
            if (sql_is_sign(t, "*") && sql_after(t).p >= list->item[i].expression.end)
                return 1;
    return 0;
}

/* ---- writing ---- */

static void put_span(FILE *f, struct span s) {
    fprintf(f, "%.*s", s.p ? (int)(s.end - s.p) : 0, s.p ? s.p : "");
}

/* With what stands for the names that the SELECT gives. */
static void put_expression(FILE *f, struct span s, const struct items *list) {
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
        put_span(f, is ? is->expression : (struct span){t.p, t.p + t.n});
        if (is)
            fputc(')', f);
        prev = t.kind == SPACE ? prev : t;
    }
}

/* The number that an ORDER BY has in the place of an expression; 0: it is one. */
static size_t place_of(const struct item *item) {
    struct token t = token_at(item->expression.p);

    return t.kind == NUMBER && sql_after(t).p >= item->expression.end ? strtoul(t.p, NULL, 10) : 0;
}

/* row_number() OVER (...) = 1. 0, or -EINVAL. */
static int put_first_of(FILE *f, const struct core *c, const struct items *list,
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
                put_span(f, list->item[place - 1].expression);
            else
                put_expression(f, of->item[i].expression, list);
            fputc(' ', f);
            put_span(f, of->item[i].ordered);
        }
    }
    fputs(") = 1", f);
    return 0;
}

/* The statement's WITH, as far as it is there for a SELECT at `select`. */
static struct span with_of(const char *statement, const char *select) {
    struct token with = token_at(statement), t = with;
    const char *comma = NULL;

    if (!sql_is(with, "with"))
        return (struct span){NULL, NULL};
    for (t = sql_after(t); t.kind != END && t.p < select && !sql_is(t, "select");
         t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        else if (sql_is_sign(t, ","))
            comma = t.p;
        if (t.p > select) /* it is within */
            return (struct span){comma ? with.p : NULL, comma};
    }
    return (struct span){with.p, t.p};
}

/* A statement that has the columns of the SELECT. 0, or an error. */
static int columns_of(sqlite3 *db, const char *statement, const struct core *c, sqlite3_stmt **st,
                      char *why) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return -ENOMEM;
    put_span(f, with_of(statement, c->begin));
    fputs(" SELECT ", f);
    put_span(f, c->list);
    fputc(' ', f);
    put_span(f, c->body);
    put_span(f, c->window);
    int err = fclose(f) == 0 ? 0 : -ENOMEM;
    if (!err && sqlite3_prepare_v2(db, text, -1, st, NULL) != SQLITE_OK) {
        snprintf(why, SQL_DIALECT_WHY, "%s: %s", c->on.p ? "DISTINCT ON" : "QUALIFY",
                 sqlite3_errmsg(db));
        err = -EINVAL;
    }
    free(text);
    return err;
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

static int put_core(FILE *f, const struct core *c, sqlite3_stmt *st, struct items *list,
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
    put_span(f, c->list);
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
    put_span(f, c->body);
    fputc(' ', f);
    put_span(f, c->window);
    fputs(") SELECT * FROM q) WHERE k", f);
    for (size_t i = 0; i < order->n; i++) {
        size_t place = place_of(&order->item[i]);
        fputs(i ? ", " : " ORDER BY ", f);
        fprintf(f, place ? "%zu " : "o%zu ", place ? place : i + 1);
        put_span(f, order->item[i].ordered);
    }
    fputc(' ', f);
    put_span(f, c->limit);
    fputc(' ', f);
    return err;
}

/* ---- one after the other ---- */

/* The first to end of those that have one: what lies within another one, or in a WITH before it, is done before it. */
static int find(const char *sql, struct core *out, const char **statement) {
    struct token prev = {END, NULL, 0};
    const char *begin = sql;
    int found = 0;

    for (struct token t = token_at(sql); t.kind != END; prev = t, t = sql_after(t)) {
        struct core c;
        if (sql_is_sign(t, ";"))
            begin = t.p + 1;
        if (!sql_is(t, "select") || sql_is_sign(prev, "."))
            continue;
        read_core(&c, prev, t);
        if ((!c.condition.p && !c.on.p) || (found && c.end >= out->end))
            continue;
        *out = c;
        *statement = begin;
        found = 1;
    }
    return found;
}

int sql_select(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    struct items *lists = NULL;
    const char *statement;
    struct core c;
    int err = 0;

    *out = NULL;
    while (!err && find(sql, &c, &statement)) {
        char *text = NULL;
        size_t size;
        sqlite3_stmt *st = NULL;
        FILE *f = open_memstream(&text, &size);
        lists = lists ? lists : malloc(2 * sizeof *lists);
        err = f && lists ? columns_of(db, statement, &c, &st, why) : -ENOMEM;
        if (!err && c.on.p && c.condition.p) {
            snprintf(why, SQL_DIALECT_WHY, "DISTINCT ON and QUALIFY: leave out one of them");
            err = -EINVAL;
        }
        if (!err) {
            put_span(f, (struct span){sql, c.begin});
            err = put_core(f, &c, st, &lists[0], &lists[1], why);
            fputs(c.end, f);
        }
        sqlite3_finalize(st);
        if (f && fclose(f) != 0 && !err)
            err = -ENOMEM;
        if (err) {
            free(text);
            break;
        }
        free(*out);
        sql = *out = text;
    }
    free(lists);
    if (err) {
        free(*out);
        *out = NULL;
    }
    return err;
}
