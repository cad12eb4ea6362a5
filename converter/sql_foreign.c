/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char no_regex[] =
    "SIMILAR TO is not known: write LIKE 'a%', or x ~ '^(a|b)$' with a regular expression";
static const char no_sets[] =
    "write one SELECT ... GROUP BY for each of its groups, with UNION ALL between them";

/* Where such a word stands. CALLED: before a '('. BETWEEN: after a table or a value, and before one of the words `behind` (NULL: before another
 * value). BEGINS: at the beginning of a statement, before one of the words `behind` (NULL: any). COMPARED: as in x = ANY (. */
enum where { CALLED, BETWEEN, BEGINS, COMPARED };
static const struct foreign {
    const char *words;
    enum where where;
    const char *behind, *instead;
} all[] = {
    {" semi ", BETWEEN, " join ", "write ... WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)"},
    {" anti ", BETWEEN, " join ", "write ... WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)"},
    {" asof ", BETWEEN, " join left inner ",
     "write (SELECT b.y FROM b WHERE b.timestamp <= a.timestamp ORDER BY b.timestamp DESC LIMIT 1)"},
    {" positional ", BETWEEN, " join ", "number both by row_number() OVER (), and join by that"},
    {" rollup cube ", CALLED, NULL, no_sets},
    {" grouping ", BETWEEN, " sets ", no_sets},
    {" with ", BETWEEN, " rollup cube totals ", no_sets},
    {" pivot ", BEGINS, NULL, "write sum(x) FILTER (WHERE rank = 0) AS r0, ... for each column"},
    {" unpivot ", BEGINS, NULL, "write SELECT 'a' AS name, a AS value ... UNION ALL SELECT 'b', b"},
    {" pivot unpivot ", BETWEEN, NULL,
     "write sum(x) FILTER (WHERE rank = 0) AS r0, ... for each column"},
    {" summarize ", BEGINS, NULL,
     "write SELECT count(x), min(x), avg(x), max(x), approx_distinct(x) FROM t; DESCRIBE t lists "
     "the columns"},
    {" from ", BEGINS, NULL, "write SELECT * FROM ..."},
    {" unnest explode ", CALLED, NULL,
     "write json_each(x), whose column is value: a list is a JSON text here"},
    {" lateral ", CALLED, NULL,
     "write the subquery behind SELECT, or join with one that has GROUP BY"},
    {" tablesample ", BETWEEN, NULL, "write WHERE random() < 0.1"},
    {" using ", BETWEEN, " sample ", "write WHERE random() < 0.1, or ORDER BY random() LIMIT 100"},
    {" explain ", BEGINS, " analyze ",
     "write EXPLAIN QUERY PLAN; \\timing at the prompt says how long"},
    {" set ", BEGINS, NULL, "times are UTC, and the form of answers is an option (--format)"},
    {" similar ", BETWEEN, " to ", no_regex},
    {" regexp_extract_all regexp_split_to_array ", CALLED, NULL,
     "write regexp_match() or regexp_extract(), which give the first match"},
    {" except intersect ", BETWEEN, " all ", "write it without ALL: each row is then there once"},
    {" ignore respect ", BETWEEN, " nulls ",
     "write max(x) FILTER (WHERE ...), or a subquery WHERE x IS NOT NULL"},
    {" any all some ", COMPARED, NULL, "write x IN (SELECT ...), or compare with max() or min()"},
};

static int is_operand(struct token t) {
    return t.kind == QUOTED || t.kind == STRING || t.kind == NUMBER || sql_is_sign(t, ")") ||
           (t.kind == WORD &&
            !sql_is_one_of(t, " and or not in like when then else case select where on having by is"
                              " between distinct by group order limit "));
}

/* Returns whether `t`, one of the words of f, stands where f says; if not, it is a name. */
static int is_meant(const struct foreign *f, struct token t, struct token prev, int begins) {
    struct token next = sql_after(t);

    switch (f->where) {
    case BEGINS:
        return begins && (!f->behind || sql_is_one_of(next, f->behind));
    case COMPARED:
        return sql_is_sign(prev, "<>=") && sql_is_sign(next, "(");
    case BETWEEN:
        return (is_operand(prev) || sql_is(prev, "by")) && !sql_is(prev, "as") &&
               (f->behind ? sql_is_one_of(next, f->behind)
                          : is_operand(next) || sql_is_sign(next, "("));
    default:
        return sql_is_sign(next, "(");
    }
}

int sql_foreign(struct token t, struct token prev, int begins, char *why, size_t size) {
    struct token next = sql_after(t);

    if (sql_is_sign(prev, "."))
        return 0;
    if (sql_is_sign(t, "^") || (sql_is_sign(t, "*/") && t.p[1] == *t.p && is_operand(prev))) {
        snprintf(why, size, "%.*s is not known: write %s", *t.p == '^' ? 1 : 2, t.p,
                 *t.p == '^'   ? "power(x, y), or xor(x, y)"
                 : *t.p == '*' ? "power(x, y)"
                               : "x / y, which has no fraction if both are whole numbers");
        return -EINVAL;
    }
    for (size_t i = 0; t.kind == WORD && i < sizeof all / sizeof *all; i++) {
        const struct foreign *f = &all[i];
        if (!sql_is_one_of(t, f->words) || !is_meant(f, t, prev, begins))
            continue;
        int two = f->behind && *f->behind == ' '; /* both words are said: ANTI JOIN */
        if (f->instead == no_regex)
            snprintf(why, size, "%s", no_regex);
        else
            snprintf(why, size, "%.*s%s%.*s is not known: %s", (int)t.n, t.p, two ? " " : "",
                     two ? (int)next.n : 0, next.p, f->instead);
        return -EINVAL;
    }
    return 0;
}
