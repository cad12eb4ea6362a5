/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct token sql_core_token(const char *p) {
    struct token t = sql_token(p);

    return t.kind == SPACE ? sql_after(t) : t;
}

static int is_end(struct token t) {
    return t.kind == END || sql_is_sign(t, ");");
}

/* ---- the clauses ---- */

/* Returns the clause that begins at `t`, after the token `prev`, or NULL. *first: the last token before the clause's content. */
static struct sql_span *clause_at(struct sql_core *c, struct token prev, struct token t,
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

void sql_core_read(struct sql_core *c, struct token prev, struct token select) {
    struct token t = sql_after(select), first;
    struct sql_span *open = &c->list;

    *c = (struct sql_core){.begin = select.p,
                           .compound = sql_is_one_of(prev, " union all except intersect ")};
    if (sql_is(t, "distinct") && sql_is(sql_after(t), "on") &&
        sql_is_sign(sql_after(sql_after(t)), "(")) {
        struct token bracket = sql_after(sql_after(t)), close = sql_closing(bracket);
        c->on = (struct sql_span){bracket.p + 1, close.p};
        t = sql_after(close);
    } else if (sql_is_one_of(t, " distinct all ")) {
        c->distinct = sql_is(t, "distinct");
        t = sql_after(t);
    }
    open->p = t.p;
    for (prev = select; !is_end(t) && (sql_is_sign(prev, "*") || /* SELECT * EXCEPT (a) */
                                       !sql_is_one_of(t, " union except intersect "));
         prev = t, t = sql_after(t)) {
        if (sql_is_sign(t, "(")) {
            t = sql_closing(t);
            if (t.kind == END)
                break;
            continue;
        }
        struct sql_span *next = clause_at(c, prev, t, &first);
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
    if (c->compound && c->order.p) { /* the clauses belong to the whole compound */
        c->end = c->order.p;
        while (strncasecmp(c->end, "order", 5) != 0)
            c->end--;
    } else if (c->compound && c->limit.p) {
        c->end = c->limit.p;
    }
    if (c->compound)
        c->order = c->limit = (struct sql_span){NULL, NULL};
}

/* Finds, of the SELECTs for which `wanted` returns 1, the one that ends first. *statement: where its statement begins. Returns 0 if there is none. */
static int find(const char *sql, int (*wanted)(const struct sql_core *c), struct sql_core *out,
                const char **statement) {
    struct token prev = {END, NULL, 0};
    const char *begin = sql;
    int found = 0;

    for (struct token t = sql_core_token(sql); t.kind != END; prev = t, t = sql_after(t)) {
        struct sql_core c;
        if (sql_is_sign(t, ";"))
            begin = t.p + 1;
        if (!sql_is(t, "select") || sql_is_sign(prev, "."))
            continue;
        sql_core_read(&c, prev, t);
        if (!wanted(&c) || (found && c.end >= out->end))
            continue;
        *out = c;
        *statement = begin;
        found = 1;
    }
    return found;
}

int sql_core_rewrite(sqlite3 *db, const char *sql, int (*wanted)(const struct sql_core *c),
                     int (*put)(const struct sql_rewriting *r), char **out, char *why) {
    struct sql_rewriting r = {.db = db, .sql = sql, .why = why};
    int err = 0;

    *out = NULL;
    while (!err && find(r.sql, wanted, &r.core, &r.statement)) {
        char *text = NULL;
        size_t size;
        r.f = open_memstream(&text, &size);
        err = r.f ? put(&r) : -ENOMEM;
        if (r.f && fclose(r.f) != 0 && !err)
            err = -ENOMEM;
        free(*out);
        *out = err ? NULL : text;
        if (err)
            free(text);
        r.sql = *out;
    }
    return err;
}

void sql_core_put(FILE *f, struct sql_span s) {
    fprintf(f, "%.*s", s.p ? (int)(s.end - s.p) : 0, s.p ? s.p : "");
}

/* Returns the statement's WITH, as far as a SELECT at `select` can use it. */
static struct sql_span with_of(const char *statement, const char *select) {
    struct token with = sql_core_token(statement), t = with;
    const char *comma = NULL;

    if (!sql_is(with, "with"))
        return (struct sql_span){NULL, NULL};
    for (t = sql_after(t); t.kind != END && t.p < select && !sql_is(t, "select");
         t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        else if (sql_is_sign(t, ","))
            comma = t.p;
        if (t.p > select) /* `select` is in this parenthesis */
            return (struct sql_span){comma ? with.p : NULL, comma};
    }
    return (struct sql_span){with.p, t.p};
}

int sql_core_columns(sqlite3 *db, const char *statement, const struct sql_core *c,
                     sqlite3_stmt **st) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return -ENOMEM;
    sql_core_put(f, with_of(statement, c->begin));
    fputs(" SELECT ", f);
    sql_core_put(f, c->list);
    fputc(' ', f);
    sql_core_put(f, c->body);
    sql_core_put(f, c->window);
    int err = fclose(f) == 0 ? 0 : -ENOMEM;
    if (!err && sqlite3_prepare_v2(db, text, -1, st, NULL) != SQLITE_OK)
        err = -EINVAL;
    free(text);
    return err;
}
