/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql_core.h"

/* Finds GROUP BY ALL in a SELECT. Returns its GROUP, or kind END. */
static struct token group_all(const struct sql_core *c) {
    struct token none = {END, NULL, 0}, by, all;

    if (!c->body.p)
        return none;
    for (struct token t = sql_core_token(c->body.p); t.kind != END && t.p < c->body.end;
         t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        if (!sql_is(t, "group") || !sql_is(by = sql_after(t), "by") ||
            !sql_is(all = sql_after(by), "all"))
            continue;
        by = sql_after(all);
        return sql_is_sign(by, ",.(") ? none : t;
    }
    return none;
}

/* Returns the ALL of ORDER BY ALL [DESC], or kind END. */
static struct token order_all(const struct sql_core *c) {
    struct token none = {END, NULL, 0}, t = c->order.p ? sql_core_token(c->order.p) : none;
    struct token next = sql_is(t, "all") ? sql_after(t) : none;

    return sql_is(t, "all") && (next.p >= c->order.end || sql_is_one_of(next, " asc desc nulls "))
               ? t
               : none;
}

static int has_all(const struct sql_core *c) {
    return group_all(c).kind != END || order_all(c).kind != END;
}

/* Returns whether the name of a function, before the '(' at `open`, is that of an aggregate. */
static int is_aggregate(sqlite3 *db, struct token name, struct token open) {
    struct token close = sql_closing(open);
    sqlite3_stmt *st = NULL;
    int commas = 0, found;

    if (sql_is(sql_after(close), "over"))
        return 0;
    for (struct token t = sql_after(open); t.kind != END && t.p < close.p; t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        commas += sql_is_sign(t, ",");
    }
    if (commas && sql_is_one_of(name, " min max ")) /* of several values in one row */
        return 0;
    found =
        sqlite3_prepare_v2(
            db, "SELECT 1 FROM pragma_function_list WHERE name = lower(?) AND type IN ('a', 'w')",
            -1, &st, NULL) == SQLITE_OK &&
        sqlite3_bind_text(st, 1, name.p, (int)name.n, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

static int has_aggregate(sqlite3 *db, struct token from, const char *end) {
    for (struct token t = from, next; t.kind != END && t.p < end; t = next) {
        next = sql_after(t);
        if (sql_is_sign(t, "(") && sql_is_one_of(next, " select with "))
            next = sql_closing(t);
        else if (t.kind == WORD && sql_is_sign(next, "(") && is_aggregate(db, t, next))
            return 1;
    }
    return 0;
}

/* Writes GROUP BY with the places of those items of the list that have no aggregate; nothing if all have one. Returns 0 or -EINVAL. */
static int put_group(FILE *f, sqlite3 *db, const struct sql_core *c, char *why) {
    struct token begin = sql_core_token(c->list.p), t = begin;
    int place = 1, put = 0;

    for (;; t = sql_after(t)) {
        int over = t.kind == END || t.p >= c->list.end;
        if (!over && !sql_is_sign(t, ",")) {
            struct token next = sql_after(t);
            if (sql_is_sign(t, "*") && (next.p >= c->list.end || sql_is_sign(next, ","))) {
                snprintf(why, SQL_DIALECT_WHY, "GROUP BY ALL: name the columns that * stands for");
                return -EINVAL;
            }
            t = sql_is_sign(t, "(") ? sql_closing(t) : t;
            continue;
        }
        if (!has_aggregate(db, begin, t.p))
            fprintf(f, "%s%d", put++ ? ", " : "GROUP BY ", place);
        if (over)
            break;
        begin = sql_after(t);
        place++;
    }
    fputc(' ', f);
    return 0;
}

static int put_order(const struct sql_rewriting *r, struct token all) {
    const struct sql_core *c = &r->core;
    sqlite3_stmt *st = NULL;
    int err = sql_core_columns(r->db, r->statement, c, &st);

    if (err == -EINVAL)
        snprintf(r->why, SQL_DIALECT_WHY, "ORDER BY ALL: %s", sqlite3_errmsg(r->db));
    for (int i = 1; !err && i <= sqlite3_column_count(st); i++) {
        fprintf(r->f, "%s%d", i > 1 ? ", " : "", i);
        sql_core_put(r->f, (struct sql_span){all.p + all.n, c->order.end});
    }
    sqlite3_finalize(st);
    return err;
}

static int put_all(const struct sql_rewriting *r) {
    struct token group = group_all(&r->core), all = order_all(&r->core);
    int err;

    if (group.kind != END) {
        struct token end = sql_after(sql_after(group));
        sql_core_put(r->f, (struct sql_span){r->sql, group.p});
        err = put_group(r->f, r->db, &r->core, r->why);
        fputs(end.p + end.n, r->f);
    } else {
        sql_core_put(r->f, (struct sql_span){r->sql, all.p});
        err = put_order(r, all);
        fprintf(r->f, " %s", r->core.order.end);
    }
    return err;
}

int sql_all(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    return sql_core_rewrite(db, sql, has_all, put_all, out, why);
}
