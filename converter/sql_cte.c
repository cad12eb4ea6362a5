/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_cte.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int is_name(struct token t) {
    return t.kind == QUOTED || (t.kind == WORD && !sql_is_one_of(t, sql_out_no_name));
}

/* Returns the ')' of a list of nothing but names, (a, b), at `open`; kind END: it is something else. */
static struct token names_end(struct token open) {
    struct token t = open;

    if (!sql_is_sign(open, "("))
        return (struct token){END, NULL, 0};
    do {
        t = sql_after(t);
        if (!is_name(t))
            return (struct token){END, NULL, 0};
        t = sql_after(t);
    } while (sql_is_sign(t, ","));
    return sql_is_sign(t, ")") ? t : (struct token){END, NULL, 0};
}

/* Gets the alias with columns, AS a(x, y), that follows the ')' at `close`. Returns its '(' and sets *name; kind END: there is none. */
static struct token alias_at(struct token close, struct token *name) {
    struct token t = sql_after(close), end;

    t = sql_is(t, "as") ? sql_after(t) : t;
    *name = t;
    end = is_name(t) ? names_end(sql_after(t)) : (struct token){END, NULL, 0};
    /* JOIN ... USING (a) is none: USING is no name */
    return end.kind == END ? end : sql_after(t);
}

int sql_cte_word(struct sql_out *w, struct token t, struct token prev) {
    struct token open = sql_after(t), end = names_end(open),
                 as = end.kind != END ? sql_after(end) : open;

    if (sql_is(t, "recursive") && sql_is(prev, "with"))
        w->recursive = 1;
    if (sql_is_one_of(prev, " from join "))
        for (int i = w->depth; i > 0 && !sql_is_sign(open, ".("); i--)
            if (w->level[i].own.kind != END && sql_same_name(w->level[i].own, t))
                return 1;
    if (!sql_is(as, "as") || (!sql_is_one_of(prev, " with recursive ") && !sql_is_sign(prev, ",")))
        return 0;
    for (as = sql_after(as); sql_is_one_of(as, " not materialized ");)
        as = sql_after(as);
    if (!sql_is_sign(as, "("))
        return 0;
    w->cte = t;
    w->cte_column = end.kind != END ? sql_after(open) : end;
    w->cte_body = as.p;
    return 0;
}

void sql_cte_open(struct sql_out *w, struct token t, struct token prev) {
    struct sql_level *l = &w->level[w->depth];
    struct token name, columns;

    l->own = l->column = (struct token){END, NULL, 0};
    l->is_table = (sql_is_one_of(prev, " from join ") || sql_is_sign(prev, ",")) &&
                  sql_is_one_of(sql_after(t), " select with values ");
    if (t.p == w->cte_body) {
        l->own = w->recursive ? l->own : w->cte;
        l->column = w->cte_column;
    } else if (l->is_table && sql_is_one_of(sql_after(t), " select with ")) {
        columns = alias_at(sql_closing(t), &name);
        l->column = columns.kind != END ? sql_after(columns) : columns;
    }
}

void sql_cte_item(struct sql_out *w) {
    struct sql_level *l = &w->level[w->depth];

    if (l->column.kind == END)
        return;
    sql_out_keep_name(w, l->column);
    l->column = sql_after(l->column);
    l->column = sql_is_sign(l->column, ",") ? sql_after(l->column) : (struct token){END, NULL, 0};
}

int sql_cte_alias(struct sql_out *w, struct token t, struct token *last) {
    const struct sql_level *was = &w->level[w->depth + 1]; /* the one that has ended */
    struct token name, open = alias_at(t, &name), close = names_end(open);
    int series = sql_is(was->name, "generate_series"), err;

    if (open.kind == END || (!series && (was->name.kind != END || !was->is_table)))
        return 0;
    char *with = NULL;
    if (asprintf(&with, "(WITH %.*s AS (%s", (int)(close.p + close.n - name.p), name.p,
                 series ? "SELECT value FROM generate_series(" : "") < 0)
        return -ENOMEM;
    err = sql_out_before(w, was->start, was->inside, with);
    free(with);
    fprintf(w->f, "%s SELECT * FROM %.*s) AS %.*s", series ? ")" : "", (int)name.n, name.p,
            (int)name.n, name.p);
    *last = close;
    return err;
}
