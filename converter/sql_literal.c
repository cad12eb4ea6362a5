/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_literal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interval.h"
#include "sql_cte.h"
#include "when.h"

/* Returns whether a string holds a number: '12', '-3', '0.5'. */
static int is_number(struct token t) {
    const char *p = t.p + 1 + (t.n > 3 && t.p[1] == '-');
    size_t digits = strspn(p, "0123456789"), used = (size_t)(p - t.p) + digits;

    if (digits > 0 && t.p[used] == '.' && isdigit((unsigned char)t.p[used + 1]))
        used += 1 + strspn(t.p + used + 1, "0123456789");
    return digits > 0 && digits < 19 && used + 1 == t.n;
}

int sql_literal_text(struct sql_out *w, struct token t, struct token prev, char *why) {
    struct sql_level *l = &w->level[w->depth];
    size_t start = sql_out_end(w);
    double seconds;
    struct when moment;
    enum sql_kind kind = sql_is_sign(prev, "<>=!") && l->compared ? l->compared
                         : l->text_end                            ? SQL_PLAIN
                                                                  : sql_out_before_time(w, t);
    char *text = t.n > 2 ? strndup(t.p + 1, t.n - 2) : NULL;

    if ((sql_is_sign(prev, "<>=!") ? l->number : sql_is_sign(prev, "(,") && l->in_number) &&
        is_number(t)) { /* rank = '3' */
        fprintf(w->f, "%.*s", (int)t.n - 2, t.p + 1);
        sql_out_operand(w, start, SQL_PLAIN);
        free(text);
        return 0;
    }
    if (l->is && sql_is_one_of(prev, " is not from "))
        kind = l->is;
    if (l->between && (sql_is(prev, "between") || sql_is(prev, "and")) && !l->text_end)
        kind = l->between_of;
    if (l->in && sql_is_sign(prev, "(,") && !l->text_end)
        kind = l->in;
    if (l->one_of && sql_is_one_of(l->name, sql_out_picks) && sql_is_sign(prev, ","))
        kind = l->one_of;
    if (l->sum && sql_is_sign(prev, "+-") && text && l->sum_of != SQL_CLOCK &&
        !sql_is_sign(sql_after(t), ":")) {
        if (interval_parse(text, t.n - 2, &seconds) == 0) {
            sql_out_seconds(w, seconds);
            sql_out_operand(w, start, SQL_PLAIN);
            free(text);
            return 0;
        }
        if (when_parse(text, &moment) != 0 || l->sum != '-') {
            snprintf(why, SQL_OUT_WHY, "no length of time: %.*s (such as INTERVAL '5 minutes')",
                     (int)(t.n < 60 ? t.n : 60), t.p);
            free(text);
            return -EINVAL;
        }
        kind = SQL_TIME;
    }
    free(text);
    if (kind)
        fputs(kind == SQL_CLOCK ? "time_of_day(" : "to_timestamp(", w->f);
    sql_out_put(w, t);
    if (kind)
        fputc(')', w->f);
    sql_out_operand(w, start, kind);
    return 0;
}

int sql_literal_dollars(struct sql_out *w, struct token t, struct token *last) {
    const char *end = t.p[1] == '$' ? strstr(t.p + 2, "$$") : NULL;

    if (!end)
        return 1;
    sql_out_operand(w, sql_out_end(w), SQL_PLAIN);
    fputc('\'', w->f);
    for (const char *p = t.p + 2; p < end; p++) {
        if (*p == '\'')
            fputc('\'', w->f);
        fputc(*p, w->f);
    }
    fputc('\'', w->f);
    *last = (struct token){SIGN, t.p, (size_t)(end + 2 - t.p)};
    return 0;
}

/* Writes the index in array_agg(x)[1] as json_extract(), because a list is a JSON text here; SQLite takes brackets for quotes of a name. Returns 1 if they
 * are those, else 0 or -errno. */
static int put_brackets(struct sql_out *w, struct token t, struct token prev, char *why) {
    int behind =
        prev.p + prev.n == t.p && (prev.kind == QUOTED || sql_is_sign(prev, ")") ||
                                   (prev.kind == WORD && !sql_is_one_of(prev, sql_out_no_name)));
    const char *p = t.p + 1;
    long i = strtol(p, NULL, 10);

    if (*t.p != '[' || !(isdigit((unsigned char)*p) || strchr("-'(", *p)))
        return 1;
    if (!behind || t.p[t.n - 1] != ']' || p + strspn(p, "-0123456789") != t.p + t.n - 1 || !i) {
        snprintf(why, SQL_OUT_WHY,
                 "no lists: %.*s (a list is a JSON text here: json_array(1, 2), json_each(x), "
                 "x IN (1, 2); list[1] is its first)",
                 (int)(t.n < 40 ? t.n : 40), t.p);
        return -EINVAL;
    }
    int err = sql_out_before(w, w->operand, w->operand, "json_extract(");
    if (i < 0)
        fprintf(w->f, ", '$[#%ld]')", i);
    else
        fprintf(w->f, ", '$[%ld]')", i - 1);
    w->time = SQL_PLAIN;
    return err;
}

int sql_literal_other(struct sql_out *w, struct token t, struct token prev, char *why) {
    struct sql_level *l = &w->level[w->depth];
    int err = t.kind == QUOTED ? put_brackets(w, t, prev, why) : 1;

    if (err <= 0)
        return err;
    if (t.kind == QUOTED && sql_cte_word(w, t, prev) == 1)
        fputs("main.", w->f);
    if (t.kind == QUOTED && (sql_is_sign(sql_after(t), ",)") || sql_is(sql_after(t), "from")))
        sql_out_keep_name(w, t);
    sql_out_operand(w, sql_is_sign(prev, ".") ? w->operand : sql_out_end(w), sql_out_kind(w, t));
    w->number |= t.kind == NUMBER || sql_out_is_number(w, t);
    if (t.kind == NUMBER && l->sum_of == SQL_DATE && l->sum && sql_is_sign(prev, "+-") &&
        !memchr(t.p, '.', t.n))
        fprintf(w->f, "(%.*s * 86400)", (int)t.n, t.p); /* a date and a number of days */
    else if (t.kind == NUMBER && memchr(t.p, '_', t.n)) /* 1_000_000 */
        for (size_t i = 0; i < t.n; i++)
            fprintf(w->f, "%.*s", t.p[i] != '_', t.p + i);
    else
        sql_out_put(w, t);
    return 0;
}
