/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_dialect.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../converter/interval.h"

enum kind { END, SPACE, WORD, NUMBER, STRING, QUOTED, SIGN };
struct token {
    enum kind kind;
    const char *p;
    size_t n;
};

/* The token at p: blanks and comments are one each. */
static struct token token_at(const char *p) {
    struct token t = {SIGN, p, 1};
    const char *end;

    if (!*p)
        return (struct token){END, p, 0};
    if (isspace((unsigned char)*p)) {
        t.kind = SPACE;
        while (isspace((unsigned char)p[t.n]))
            t.n++;
    } else if (p[0] == '-' && p[1] == '-') {
        t.kind = SPACE;
        t.n = strcspn(p, "\n");
    } else if (p[0] == '/' && p[1] == '*') {
        t.kind = SPACE;
        end = strstr(p + 2, "*/");
        t.n = end ? (size_t)(end + 2 - p) : strlen(p);
    } else if (*p == '\'' || *p == '"' || *p == '`') {
        t.kind = *p == '\'' ? STRING : QUOTED;
        while (p[t.n] && (p[t.n] != *p || p[t.n + 1] == *p))
            t.n += p[t.n] == *p ? 2 : 1; /* two of them are one within */
        t.n += p[t.n] != 0;
    } else if (*p == '[') {
        t.kind = QUOTED;
        t.n = strcspn(p, "]");
        t.n += p[t.n] != 0;
    } else if (isdigit((unsigned char)*p)) {
        t.kind = NUMBER;
        while (isalnum((unsigned char)p[t.n]) || p[t.n] == '.')
            t.n++;
    } else if (isalpha((unsigned char)*p) || *p == '_' || (unsigned char)*p >= 0x80) {
        t.kind = WORD;
        while (isalnum((unsigned char)p[t.n]) || p[t.n] == '_' || p[t.n] == '$' ||
               (unsigned char)p[t.n] >= 0x80)
            t.n++;
    }
    return t;
}

/* The next token after `t` that is neither blank nor comment. */
static struct token after(struct token t) {
    do
        t = token_at(t.p + t.n);
    while (t.kind == SPACE);
    return t;
}

static int is(struct token t, const char *word) {
    return t.kind == WORD && strlen(word) == t.n && strncasecmp(t.p, word, t.n) == 0;
}

/* INTERVAL at `t`: the seconds, and *last, its last token. 0; 1: it is none (a column of that name); -EINVAL */
static int interval(struct token t, struct token *last, double *seconds, char *why) {
    struct token what = after(t), unit = after(what);
    const char *p = what.p;
    size_t n = what.n;

    if (what.kind != STRING && what.kind != NUMBER)
        return 1;
    if (what.kind == STRING && n >= 2) {
        p++;
        n -= 2;
    }
    double scale = unit.kind == WORD ? interval_unit(unit.p, unit.n) : 0;
    *last = what;
    if (scale > 0 && n && strspn(p, "0123456789. ") >= n) {
        *last = unit;
        *seconds = strtod(p, NULL) * scale;
        return 0;
    }
    if (what.kind == STRING && interval_parse(p, n, seconds) == 0)
        return 0;
    snprintf(why, SQL_DIALECT_WHY,
             "no interval: %.*s (such as INTERVAL '5 minutes', '1 hour 30 min')",
             (int)(what.n < 60 ? what.n : 60), what.p);
    return -EINVAL;
}

/* A statement that begins with SHOW or DESCRIBE: what is asked instead, NULL where it is neither. *last: its last token. */
static const char *show(struct token t, struct token *last, struct token *table) {
    struct token second = after(t), third = after(second);

    *table = (struct token){END, NULL, 0};
    *last = second;
    if (is(t, "show") && is(second, "tables"))
        return "SELECT * FROM information_schema.tables";
    if (is(t, "show") && is(second, "all"))
        return "SELECT name, value FROM information_schema.df_settings";
    if (is(t, "show") && is(second, "columns") && (is(third, "from") || is(third, "in")))
        *table = after(third);
    else if (is(t, "describe") || is(t, "desc"))
        *table = is(second, "table") ? third : second;
    else
        return NULL;
    for (struct token dot = after(*table); dot.kind == SIGN && *dot.p == '.'; dot = after(*table))
        *table = after(dot); /* python.torch_trace: the last name counts */
    *last = *table;
    return table->kind == WORD || table->kind == QUOTED || table->kind == STRING
               ? "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
               : NULL;
}

static void put_table(FILE *f, struct token t) {
    int quoted = t.kind != WORD;

    fputs(" WHERE table_name = '", f);
    for (size_t i = (size_t)quoted; i < t.n - (size_t)quoted; i++) {
        if (t.p[i] == '\'')
            fputc('\'', f);
        fputc(t.p[i], f);
    }
    fputs("' COLLATE NOCASE", f);
}

int sql_dialect(const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    struct token t, last = {0}, table;
    int begins = 1, err = 0; /* begins: of a statement */
    double seconds = 0;
    size_t size;
    FILE *f = open_memstream(out, &size);

    if (!f)
        return -ENOMEM;
    for (const char *p = sql; !err && (t = token_at(p)).kind != END; p = t.p + t.n) {
        const char *instead = begins && t.kind == WORD ? show(t, &last, &table) : NULL;
        struct token open = after(t), field = after(open);
        if (t.kind != SPACE)
            begins = t.kind == SIGN && *t.p == ';';
        if (instead) {
            fputs(instead, f);
            if (table.p)
                put_table(f, table);
            t = last;
        } else if (is(t, "interval") && (err = interval(t, &last, &seconds, why)) <= 0) {
            fprintf(f, "(%.17g)", seconds);
            t = last;
        } else if (is(t, "extract") && open.kind == SIGN && *open.p == '(' &&
                   is(after(field), "from")) {
            fprintf(f, "date_part('%.*s', ", (int)field.n, field.p);
            t = after(field);
        } else if (is(t, "ilike")) {
            fputs("LIKE", f);
        } else {
            fwrite(t.p, 1, t.n, f);
            err = 0;
        }
    }
    if (ferror(f) && !err)
        err = -ENOMEM;
    if (fclose(f) != 0 && !err)
        err = -ENOMEM;
    if (err) {
        free(*out);
        *out = NULL;
    }
    return err;
}
