/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_operand.h"

int sql_operand_gives_text(struct token t) {
    return sql_is_one_of(
               t,
               " concat concat_ws upper lower replace substr substring substring_index trim ltrim"
               " rtrim btrim left right lpad rpad split_part printf format strftime to_char"
               " date_format date datetime regexp_replace regexp_extract string_agg group_concat"
               " time_text date_text json_extract ") &&
           sql_is_sign(sql_after(t), "(");
}

static int is_joined(struct token t) {
    return sql_is_sign(t, "|") && t.p[1] == '|';
}

/* Returns whether a value that is a text is made in [from, end): by ||, by a function, or by a string that stands behind a '(', a comma or one of
 * these words, as an argument of coalesce() and as a result of CASE do. */
static int makes_text(struct token from, const char *end) {
    struct token prev = {END, NULL, 0};

    for (struct token t = from; t.kind != END && t.p < end; prev = t, t = sql_after(t)) {
        if (is_joined(t) || sql_operand_gives_text(t))
            return 1;
        if (t.kind == STRING &&
            (sql_is_sign(prev, "(,") || sql_is_one_of(prev, " then else select ")) &&
            !sql_is_sign(sql_after(t), "<>=!:"))
            return 1;
    }
    return 0;
}

/* Returns the END of the CASE at `t`. */
static struct token case_end(struct token t) {
    int depth = 0;

    for (; t.kind != END; t = sql_after(t)) {
        depth += sql_is(t, "case") - sql_is(t, "end");
        if (depth == 0)
            break;
    }
    return t;
}

const char *sql_operand_text(struct token t) {
    static const char ends[] =
        " and or group order limit having window qualify union except intersect then else end when as from"
        " on where join left right inner outer full cross natural is not between in collate escape over filter ";
    static const char picks[] =
        " coalesce ifnull nvl nvl2 iif if nullif greatest least max min lag lead first_value last_value ";
    struct token begin = t, last = begin;
    int joined = 0, made = 0;

    if (sql_is(t, "case")) {
        last = case_end(t);
        made = makes_text(t, last.p);
    } else if (sql_is_sign(t, "(")) { /* a query, or an expression */
        last = sql_closing(t);
        made = makes_text(sql_is_one_of(sql_after(t), " select with ") ? sql_after(t) : t, last.p);
    } else if (sql_is_one_of(t, picks) && sql_is_sign(sql_after(t), "(")) {
        last = sql_closing(sql_after(t));
        made = makes_text(sql_after(t), last.p);
    } else {
        made = sql_operand_gives_text(t);
    }
    if (last.kind == END)
        return NULL;
    for (t = last.p == begin.p ? begin : sql_after(last); t.kind != END; t = sql_after(t)) {
        if (sql_is_sign(t, "),;+-<>=!") ||
            (t.kind == WORD && t.p != begin.p && sql_is_one_of(t, ends)))
            break;
        joined |= is_joined(t);
        if (sql_is_sign(t, "("))
            t = sql_closing(t);
        if (t.kind == END)
            return NULL;
        last = t;
    }
    return made || joined ? last.p + last.n : NULL;
}
