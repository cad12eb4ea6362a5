/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_star.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql_core.h"

/* A * in the list of a SELECT, with the changes that follow it. */
struct star {
    struct sql_span star;     /* the * with its table's name, "t.*" */
    struct token change, end; /* word of the first change (EXCLUDE); last token of the last one */
};

static int is_change(struct token t) {
    struct token next = sql_after(t);

    return (sql_is_one_of(t, " exclude except replace rename ") && sql_is_sign(next, "(")) ||
           (sql_is(t, "exclude") && (next.kind == WORD || next.kind == QUOTED));
}

static struct token change_end(struct token t) {
    struct token next = sql_after(t);

    return sql_is_sign(next, "(") ? sql_closing(next) : next;
}

/* Writes a name as a quoted SQL identifier. */
static void put_name(FILE *f, const char *name) {
    char *quoted = sqlite3_mprintf("\"%w\"", name);

    fputs(quoted ? quoted : "", f);
    sqlite3_free(quoted);
}

static int is_name(struct token t, const char *name) {
    struct token other = {WORD, name, strlen(name)};

    return (t.kind == WORD || t.kind == QUOTED) && sql_same_name(t, other);
}

/* Finds the item of a change that is about the column `name`, in (a, b), (x + 1 AS a) or (a AS b). Returns 0 if there is none. */
static int find_item(struct token change, struct token end, const char *name,
                     struct sql_span *item) {
    struct token open = sql_after(change), first, last;

    if (!sql_is_sign(open, "(")) { /* EXCLUDE a */
        *item = (struct sql_span){open.p, open.p + open.n};
        return is_name(open, name);
    }
    for (struct token t = sql_after(open); t.p < end.p; t = sql_after(last)) {
        first = last = t;
        for (; t.kind != END && t.p < end.p && !sql_is_sign(t, ","); t = sql_after(t)) {
            if (sql_is_sign(t, "("))
                t = sql_closing(t);
            last = t;
        }
        *item = (struct sql_span){first.p, last.p + last.n};
        if (is_name(sql_is(change, "replace") ? last : first, name))
            return 1;
        last = t;
        if (t.kind == END || t.p >= end.p)
            break;
    }
    return 0;
}

/* Finds the first item of a change that is about no column of the *. Returns 0 if there is none. */
static int find_missing(sqlite3_stmt *st, struct token change, struct token end,
                        struct sql_span *item) {
    struct token open = sql_after(change), first, last, name;
    int bare = !sql_is_sign(open, "("), there;

    for (struct token t = bare ? open : sql_after(open); bare || t.p < end.p; t = sql_after(t)) {
        first = last = t;
        for (; !bare && t.kind != END && t.p < end.p && !sql_is_sign(t, ","); t = sql_after(t)) {
            if (sql_is_sign(t, "("))
                t = sql_closing(t);
            last = t;
        }
        name = sql_is(change, "replace") ? last : first;
        there = 0;
        for (int i = 0; i < sqlite3_column_count(st); i++)
            there |= is_name(name, sqlite3_column_name(st, i));
        *item = (struct sql_span){first.p, last.p + last.n};
        if (!there)
            return 1;
        if (bare || t.kind == END)
            break;
    }
    return 0;
}

/* Writes the columns of the *, as its changes make them. Returns 0, -ENOMEM, or -EINVAL with a sentence in `why`. */
static int put_columns(FILE *f, sqlite3_stmt *st, const struct star *s, char *why) {
    int n = sqlite3_column_count(st), put = 0;
    struct sql_span missing;

    for (struct token c = s->change; is_change(c) && c.p <= s->end.p; c = sql_after(change_end(c)))
        if (find_missing(st, c, change_end(c), &missing)) {
            snprintf(why, SQL_DIALECT_WHY, "%.*s (%.*s): a column of that name is not there",
                     (int)c.n, c.p, (int)(missing.end - missing.p), missing.p);
            return -EINVAL;
        }
    for (int i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(st, i);
        struct sql_span item = {NULL, NULL}, as = {NULL, NULL};
        int dropped = 0;
        if (!name)
            return -ENOMEM;
        for (struct token c = s->change; is_change(c) && c.p <= s->end.p;
             c = sql_after(change_end(c))) {
            struct sql_span found;
            if (!find_item(c, change_end(c), name, &found))
                continue;
            dropped |= sql_is_one_of(c, " exclude except ");
            if (sql_is(c, "replace"))
                item = found;
            else if (sql_is(c, "rename"))
                as = found;
        }
        if (dropped)
            continue;
        fputs(put++ ? ", " : "", f);
        if (item.p) {
            sql_core_put(f, item);
            continue;
        }
        sql_core_put(f, (struct sql_span){s->star.p, s->star.end - 1}); /* "t." */
        put_name(f, name);
        if (as.p) { /* what follows the a in "a AS b" */
            struct token a = sql_core_token(as.p);
            sql_core_put(f, (struct sql_span){a.p + a.n, as.end});
        }
    }
    if (!put) {
        snprintf(why, SQL_DIALECT_WHY, "%.*s leaves no column", (int)s->change.n, s->change.p);
        return -EINVAL;
    }
    return 0;
}

/* Finds the first * with a change in the list of a SELECT. Returns 0 if there is none. */
static int star_of(const struct sql_core *c, struct star *s) {
    struct token start = sql_core_token(c->list.p);

    for (struct token k = start; k.p < c->list.end && k.kind != END; k = sql_after(k)) {
        if (sql_is_sign(k, ","))
            start = sql_after(k);
        if (sql_is_sign(k, "("))
            k = sql_closing(k);
        if (!sql_is_sign(k, "*") || !is_change(sql_after(k)))
            continue;
        *s = (struct star){.star = {start.p, k.p + 1}, .change = sql_after(k), .end = sql_after(k)};
        for (struct token e = s->change; is_change(e); e = sql_after(s->end))
            s->end = change_end(e);
        return 1;
    }
    return 0;
}

static int has_star(const struct sql_core *c) {
    struct star s;

    return star_of(c, &s);
}

static int put_star(const struct sql_rewriting *r) {
    struct star s;
    struct sql_core only = r->core; /* the SELECT with only the * in its list */
    sqlite3_stmt *st = NULL;

    star_of(&r->core, &s);
    only.list = s.star;
    int err = sql_core_columns(r->db, r->statement, &only, &st);
    if (err == -EINVAL)
        snprintf(r->why, SQL_DIALECT_WHY, "%.*s: %s", (int)s.change.n, s.change.p,
                 sqlite3_errmsg(r->db));
    sql_core_put(r->f, (struct sql_span){r->sql, s.star.p});
    if (!err)
        err = put_columns(r->f, st, &s, r->why);
    fputs(s.end.p + s.end.n, r->f);
    sqlite3_finalize(st);
    return err;
}

int sql_star(sqlite3 *db, const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    return sql_core_rewrite(db, sql, has_star, put_star, out, why);
}
