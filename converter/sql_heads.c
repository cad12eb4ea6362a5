/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_heads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sql_core.h"

/* One expression of a SELECT's list. */
struct item {
    struct token first, before, last; /* before: the token before the last, or kind END */
};

/* As SQLite does, takes a ';' with nothing before it for no statement of its own. */
static struct token begin_of(const char *typed) {
    struct token t = sql_core_token(typed);

    while (sql_is_sign(t, ";"))
        t = sql_after(t);
    return t;
}

/* Returns the ';' after the statement, or END. *unclear: whether it has a text of the form $$it's; a text$$, which is split in pieces here: from it on
 * the names stay as SQLite has them. */
static struct token end_of(const char *typed, int *unclear) {
    struct token t = begin_of(typed);

    while (t.kind != END && !sql_is_sign(t, ";"))
        t = sql_after(t);
    const char *dollars = strstr(typed, "$$");
    *unclear = dollars && dollars < t.p;
    return t;
}

const char *sql_heads_after(const char *typed) {
    int unclear;
    struct token t = end_of(typed, &unclear);

    return unclear ? typed + strlen(typed) : t.p + t.n;
}

/* Finds the expressions of the statement's outermost SELECT. Returns their number, or 0 if they are not the columns one by one: with a *, or in
 * SHOW, VALUES, EXPLAIN. item has room for n; a larger result: there are more. */
static int read_items(const char *typed, struct item *item, int n) {
    struct token t = begin_of(typed), prev = {END, NULL, 0};
    struct sql_core core;
    int found = 0, unclear;

    end_of(typed, &unclear);
    if (unclear || !sql_is_one_of(t, " select with "))
        return 0;
    for (; t.kind != END && !sql_is_sign(t, ";") && !sql_is(t, "select");
         prev = t, t = sql_after(t)) {
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
    }
    if (!sql_is(t, "select"))
        return 0;
    sql_core_read(&core, prev, t);
    struct item one = {.first.kind = END};
    for (t = sql_core_token(core.list.p); t.kind != END && t.p < core.list.end; t = sql_after(t)) {
        if (sql_is_sign(t, ",")) {
            if (found < n)
                item[found] = one;
            found++;
            one = (struct item){.first.kind = END};
            continue;
        }
        if (sql_is_sign(t, "*") && (one.first.kind == END || sql_is_sign(one.last, ".")))
            return 0;
        if (one.first.kind == END)
            one.first = t;
        one.before = one.last;
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        one.last = t;
    }
    if (one.first.kind == END)
        return 0;
    if (found < n)
        item[found] = one;
    return found + 1;
}

/* Returns whether the column has this name because the text says so: AS name, expression name, t.name. */
static int is_named(struct item i, const char *name) {
    size_t n = strlen(name);

    if (sql_is(i.before, "as") || (i.last.kind == QUOTED && memchr(name, *i.last.p, n)))
        return 1;
    if (sql_same_name(i.first, (struct token){WORD, name, n})) /* x AT TIME ZONE 'UTC' */
        return 1;
    if (i.last.kind != WORD && i.last.kind != QUOTED && i.last.kind != STRING)
        return 0;
    return sql_same_name(i.last, (struct token){WORD, name, n}) ||
           (i.last.n == n + 2 && memcmp(i.last.p + 1, name, n) == 0);
}

int sql_heads(const char *typed, const char **names, int n, char **memory) {
    struct item *item = calloc((size_t)n + 1, sizeof *item);
    size_t size = 1;
    char *p;

    *memory = NULL;
    if (!item)
        return -ENOMEM;
    int found = read_items(typed, item, n);
    for (int i = 0; found == n && i < n; i++)
        size += (size_t)(item[i].last.p + item[i].last.n - item[i].first.p) + 1;
    if (found != n || !(*memory = p = malloc(size))) {
        free(item);
        return found == n ? -ENOMEM : 0;
    }
    for (int i = 0; i < n; i++) {
        if (is_named(item[i], names[i]))
            continue;
        size_t bytes = (size_t)(item[i].last.p + item[i].last.n - item[i].first.p);
        memcpy(p, item[i].first.p, bytes);
        p[bytes] = 0;
        names[i] = p;
        p += bytes + 1;
    }
    free(item);
    return 0;
}
