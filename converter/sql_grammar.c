/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "interval.h"

/* Finds the first token between the '(' at `open` and its ')' that is one of the words, or `sign`, and lies in no parentheses of its own. Kind END: there is none. */
static struct token find(struct token open, const char *words, char sign) {
    struct token close = sql_closing(open);

    for (struct token t = sql_after(open); t.kind != END && t.p < close.p; t = sql_after(t)) {
        if (sql_is_one_of(t, words) || (sign && t.kind == SIGN && *t.p == sign))
            return t;
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
    }
    return (struct token){END, NULL, 0};
}

/* Writes NAME(a, b) with the parts [a, a_end) and [b, b_end) of the text; b.p NULL: NAME(a). */
static int put_call(struct sql_out *w, const char *name, struct token a, struct token a_end,
                    struct token b, struct token b_end, char *why) {
    size_t start = sql_out_end(w);

    fprintf(w->f, "%s(", name);
    int err = sql_out_part(w, a, a_end, why);
    if (!err && b.p) {
        fputs(", ", w->f);
        err = sql_out_part(w, b, b_end, why);
    }
    fputc(')', w->f);
    sql_out_operand(w, start, SQL_PLAIN);
    return err;
}

/* trim([BOTH|LEADING|TRAILING] [chars] FROM x), at its name. */
static int trim(struct sql_out *w, struct token open, struct token *last, char *why) {
    struct token from = find(open, " from ", 0), first = sql_after(open), none = {END, NULL, 0};
    const char *name = sql_is(first, "leading")    ? "ltrim"
                       : sql_is(first, "trailing") ? "rtrim"
                                                   : "trim";

    if (from.kind == END)
        return 1;
    first = sql_is_one_of(first, " both leading trailing ") ? sql_after(first) : first;
    *last = sql_closing(open);
    return put_call(w, name, sql_after(from), *last, first.p == from.p ? none : first, from, why);
}

/* arrow_cast(x, 'Type'), at its name. */
static int arrow_cast(struct sql_out *w, struct token open, struct token *last, char *why) {
    struct token comma = find(open, " ", ','), text = sql_after(comma), type, end;
    struct sql_cast c;
    size_t start = sql_out_end(w);

    *last = sql_closing(open);
    if (comma.kind == END || text.kind != STRING)
        return 1;
    type = sql_token(text.p + 1);
    if (sql_cast_to(type, SQL_PLAIN, &end, &c) < 0) {
        snprintf(
            why, SQL_OUT_WHY,
            "arrow_cast: no type %.*s (such as 'Int64', 'Float64', 'Utf8', 'Boolean', 'Timestamp(us, None)')",
            (int)(text.n < 40 ? text.n : 40), text.p);
        return -EINVAL;
    }
    fputs(c.begin, w->f);
    int err = sql_out_part(w, sql_after(open), comma, why);
    fprintf(w->f, "%s)", c.end);
    sql_out_operand(w, start, c.kind);
    w->number |= c.number;
    return err;
}

/* INTERVAL (n) MINUTE, at its first word. */
static int interval_of(struct sql_out *w, struct token open, struct token *last, char *why) {
    struct token close = sql_closing(open), unit = sql_after(close);
    double scale = unit.kind == WORD ? interval_unit(unit.p, unit.n) : 0;
    size_t start = sql_out_end(w);

    if (!(scale > 0))
        return 1; /* the function interval('5 min') */
    fputs("((", w->f);
    int err = sql_out_part(w, sql_after(open), close, why);
    fputs(") * ", w->f);
    sql_out_seconds(w, scale);
    fputc(')', w->f);
    sql_out_operand(w, start, SQL_PLAIN);
    *last = unit;
    return err;
}

/* Returns whether a call that ends with `close` is of a window function. */
static int is_over(struct token close) {
    struct token t = sql_after(close);

    if (sql_is(t, "filter") && sql_is_sign(sql_after(t), "("))
        t = sql_after(sql_closing(sql_after(t)));
    return sql_is(t, "over");
}

/* string_agg(DISTINCT x, ', ' ORDER BY a DESC, b) and its like, at its name, as ordered(): see converter/sql_ordered.h. */
static int ordered(struct sql_out *w, struct token t, struct token open, struct token *last,
                   char *why) {
    static const char *const all[][2] = {{" string_agg group_concat listagg ", "text"},
                                         {" array_agg list json_group_array ", "list"},
                                         {" first first_value any_value ", "first"},
                                         {" last last_value ", "last"},
                                         {" nth_value ", "nth"}};
    struct token close = sql_closing(open), order = find(open, " order ", 0), x = sql_after(open),
                 comma = find(open, " order ", ','), end = order.kind != END ? order : close;
    int distinct = sql_is(x, "distinct"), err = 0;
    size_t i = 0, start = sql_out_end(w);
    char how[40] = "";

    while (i < sizeof all / sizeof *all && !sql_is_one_of(t, all[i][0]))
        i++;
    if (sql_is(comma, "order"))
        comma = (struct token){END, NULL, 0};
    if (i == sizeof all / sizeof *all || close.kind == END || is_over(close) ||
        (order.kind == END ? !(distinct && comma.kind != END) : !sql_is(sql_after(order), "by")))
        return 1;
    fprintf(w->f, "ordered('%s', '          ",
            all[i][1]); /* blanks: for what the keys' directions are */
    size_t how_at = sql_out_end(w) - 10;
    fputs("', ", w->f);
    err = sql_out_part(w, distinct ? sql_after(x) : x, comma.kind != END ? comma : end, why);
    fputs(", ", w->f);
    if (comma.kind != END && !err)
        err = sql_out_part(w, sql_after(comma), end, why);
    else
        fputs(i ? "NULL" : "','", w->f);
    strcpy(how, distinct ? "D" : "");
    struct token key = order.kind != END ? sql_after(sql_after(order)) : close;
    for (struct token k = key, k_end = {END, NULL, 0}; !err && key.p < close.p; k = sql_after(k)) {
        int over = k.p >= close.p || k.kind == END;
        if (sql_is_one_of(k, " asc desc nulls ") && k_end.kind == END)
            k_end = k;
        if (!over && !sql_is_sign(k, ",")) {
            k = sql_is_sign(k, "(") ? sql_closing(k) : k;
            continue;
        }
        k_end = k_end.kind == END ? k : k_end;
        struct token way = sql_is(k_end, "nulls") ? k_end : sql_after(k_end);
        int desc = sql_is(k_end, "desc");
        int first = sql_is(way, "nulls") && way.p < k.p ? sql_is(sql_after(way), "first") : desc;
        if (strlen(how) + 3 > 10) {
            snprintf(why, SQL_OUT_WHY, "%.*s: at most four keys in its ORDER BY", (int)t.n, t.p);
            return -EINVAL;
        }
        strcat(how, desc ? "d" : "a");
        strcat(how, first ? "f" : "l");
        fputs(", ", w->f);
        err = sql_out_part(w, key, k_end, why);
        k_end = (struct token){END, NULL, 0};
        if (over)
            break;
        key = sql_after(k);
    }
    fputc(')', w->f);
    if (!err)
        err = sql_out_before(w, how_at, how_at + 10, how);
    sql_out_operand(w, start, SQL_PLAIN);
    *last = close;
    return err;
}

/* What is written as a call, at its name. */
static int call(struct sql_out *w, struct token t, struct token open, struct token *last,
                char *why) {
    static const char *const named[][2] = {
        {"left", "text_left"}, {"right", "text_right"}, {"if", "iif"}};
    struct token close = sql_closing(open), mid, text;
    int err;

    if (sql_is(t, "position") && (mid = find(open, " in ", 0)).kind != END) {
        *last = close;
        err = put_call(w, "instr", sql_after(mid), close, sql_after(open), mid, why);
        w->number = 1;
        return err;
    }
    if ((err = ordered(w, t, open, last, why)) <= 0)
        return err;
    if (sql_is_one_of(t, " first_value last_value ") && !is_over(close)) {
        sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
        fputs(sql_is(t, "first_value") ? "first" : "last", w->f);
        return 0;
    }
    if (sql_is(t, "trim"))
        return trim(w, open, last, why);
    if (sql_is(t, "arrow_cast"))
        return arrow_cast(w, open, last, why);
    if (sql_is(t, "interval"))
        return interval_of(w, open, last, why);
    if (sql_is(t, "strftime") && (mid = find(open, " ", ',')).kind != END) {
        text = sql_after(mid); /* DuckDB's order of arguments */
        if (text.kind != STRING || sql_after(open).kind == STRING || sql_after(text).p != close.p ||
            !memchr(text.p, '%', text.n))
            return 1;
        *last = close;
        return put_call(w, "to_char", sql_after(open), mid, text, close, why);
    }
    if (sql_is(t, "today") && sql_after(open).p == close.p) {
        sql_out_operand(w, sql_out_end(w), SQL_DATE);
        fputs("date_trunc('day', now())", w->f);
        *last = close;
        return 0;
    }
    if (sql_is_one_of(t, " approx_distinct approx_count_distinct ")) {
        size_t start = sql_out_end(w);
        fputs("count", w->f);
        sql_out_open(w, t, start);
        fputs("DISTINCT ", w->f);
        *last = open;
        return 0;
    }
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (sql_is(t, named[i][0])) {
            sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
            fputs(named[i][1], w->f);
            return 0;
        }
    return 1;
}

/* LIMIT, OFFSET and FETCH. */
static int limit(struct sql_out *w, struct token t, struct token next, struct token *last) {
    struct sql_level *l = &w->level[w->depth];
    struct token number = sql_after(next), rows = sql_after(number), only = sql_after(rows);

    if (sql_is(t, "limit")) {
        l->limited = 1;
        if (!sql_is(next, "all"))
            return 1;
        fputs("LIMIT -1", w->f);
        *last = next;
    } else if (sql_is(t, "offset") && !l->limited && next.kind == NUMBER) {
        fputs("LIMIT -1 OFFSET", w->f);
    } else if (sql_is(t, "fetch") && sql_is_one_of(next, " first next ") && number.kind == NUMBER &&
               sql_is_one_of(rows, " row rows ") && sql_is(only, "only")) {
        fprintf(w->f, "LIMIT %.*s", (int)number.n, number.p);
        *last = only;
    } else {
        return 1;
    }
    sql_out_no_operand(w);
    return 0;
}

int sql_grammar_put(struct sql_out *w, struct token t, struct token prev, struct token *last,
                    char *why) {
    struct token next = sql_after(t), zone = sql_after(sql_after(next));
    const struct sql_level *l = &w->level[w->depth];
    int err = 1;

    *last = t;
    if (sql_is_sign(next, "(") && !sql_is(prev, "as"))
        err = call(w, t, next, last, why);
    if (err == 1)
        err = limit(w, t, next, last);
    if (err <= 0)
        return err;
    if ((sql_is_one_of(l->name, " substring substr overlay ") && sql_is_one_of(t, " from for ")) ||
        (sql_is(l->name, "overlay") && sql_is(t, "placing"))) {
        fputc(',', w->f);
        sql_out_no_operand(w);
        return 0;
    }
    if (sql_is(t, "at") && sql_is(next, "time") && sql_is(sql_after(next), "zone")) {
        static const char *const utc[] = {"'UTC'", "'utc'", "'Etc/UTC'",
                                          "'GMT'", "'Z'",   "'+00:00'"};
        *last = zone;
        for (size_t i = 0; i < sizeof utc / sizeof *utc; i++)
            if (strlen(utc[i]) == zone.n && memcmp(utc[i], zone.p, zone.n) == 0)
                return 0;
        snprintf(
            why, SQL_OUT_WHY,
            "AT TIME ZONE: times are UTC here; add the hours (timestamp + INTERVAL '2 hours')");
        return -EINVAL;
    }
    return 1;
}
