/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_dialect.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/interval.h"
#include "../converter/when.h"
#include "sql_tokens.h"

/* INTERVAL at `t`: the seconds, and *last, its last token. 0; 1: it is none (a column of that name); -EINVAL */
static int interval(struct token t, struct token *last, double *seconds, char *why) {
    struct token what = sql_after(t), unit = sql_after(what);
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
    static const struct {
        const char *what, *sql;
    } shown[] = {{"tables", "SELECT * FROM information_schema.tables"},
                 {"views", "SELECT * FROM information_schema.tables WHERE table_type = 'VIEW'"},
                 {"all", "SELECT name, value FROM information_schema.df_settings"},
                 {"schemas", "SELECT DISTINCT table_schema FROM information_schema.tables"},
                 {"databases", "SELECT DISTINCT table_schema FROM information_schema.tables"}};
    struct token second = sql_after(t), third = sql_after(second);

    *table = (struct token){END, NULL, 0};
    *last = second;
    for (size_t i = 0; sql_is(t, "show") && i < sizeof shown / sizeof *shown; i++)
        if (sql_is(second, shown[i].what))
            return shown[i].sql;
    if (sql_is(t, "show") && sql_is(second, "columns") &&
        (sql_is(third, "from") || sql_is(third, "in")))
        *table = sql_after(third);
    else if (sql_is(t, "describe") || sql_is(t, "desc"))
        *table = sql_is(second, "table") ? third : second;
    else
        return NULL;
    for (struct token dot = sql_after(*table); dot.kind == SIGN && *dot.p == '.';
         dot = sql_after(*table))
        *table = sql_after(dot); /* python.torch_trace: the last name counts */
    *last = *table;
    return !sql_is(*table, "select") &&
                   (table->kind == WORD || table->kind == QUOTED || table->kind == STRING)
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

/* ---- what is written, and what is known of it ---- */

#define DEPTH 100 /* of parentheses; what lies deeper stays as it is */

/* Within a pair of parentheses, or the statement. */
struct level {
    struct token name;    /* of the function, else END */
    size_t start, inside; /* in the text written: of the name, else of the '('; behind the '(' */
    int commas;
    int made_time; /* CAST(x AS TIMESTAMP) */
    char sum;      /* + or -: the operand before it is a time */
    int compared;  /* so is what stands before the comparison */
    int between;   /* and before BETWEEN: 2, then 1 behind its AND, then 0 */
};

struct writer {
    FILE *f;
    char **text; /* of f, once it is flushed */
    struct level level[DEPTH];
    int depth;
    size_t operand; /* where the last one starts in the text */
    int time;       /* whether it is a time */
};

static size_t at_end(struct writer *w) {
    return (size_t)ftello(w->f);
}

/* `words` in the place of what is written from `from` to `to`. */
static int put_before(struct writer *w, size_t from, size_t to, const char *words) {
    char *tail = fflush(w->f) == 0 ? strdup(*w->text + to) : NULL;

    if (!tail || fseeko(w->f, (off_t)from, SEEK_SET) != 0) {
        free(tail);
        return -ENOMEM;
    }
    fputs(words, w->f);
    fputs(tail, w->f);
    free(tail);
    return 0;
}

static void put(struct writer *w, struct token t) {
    fwrite(t.p, 1, t.n, w->f);
}

/* What is no operand and no function's name, though a '(' or an operand may follow. */
static const char no_name[] =
    " and or not in like ilike between when then else end case select where on having by from as"
    " union all distinct exists over filter using values is escape glob limit offset set qualify ";
static const char gives_time[] =
    " now to_timestamp date_trunc date_bin time_bucket from_unixtime to_timestamp_seconds"
    " to_timestamp_millis to_timestamp_micros to_timestamp_nanos ";

/* A column that the views have times in. */
static int is_time_column(struct token t) {
    int quoted = t.kind == QUOTED;
    char name[32];

    if ((t.kind != WORD && !quoted) || t.n >= sizeof name || t.n < 3)
        return 0;
    for (size_t i = 0; i < t.n; i++)
        name[i] = (char)tolower((unsigned char)t.p[i]);
    name[t.n - (size_t)quoted] = 0;
    return when_is_column(name + quoted);
}

/* The last name of a chain (s.timestamp) that begins at `t`. */
static struct token last_name(struct token t) {
    for (struct token dot = sql_after(t); sql_is_sign(dot, "."); dot = sql_after(t))
        t = sql_after(dot);
    return t;
}

/* Whether the text at `t` is compared with a time that stands behind it. */
static int is_before_time(struct token t) {
    struct token next = sql_after(t);

    if (!sql_is_sign(next, "<>=!"))
        return 0;
    while (sql_is_sign(next, "<>=!"))
        next = sql_after(next);
    if (sql_is_one_of(next, gives_time))
        return sql_is_sign(sql_after(next), "(");
    next = last_name(next);
    return is_time_column(next) && !sql_is_sign(sql_after(next), "(");
}

/* An operand that starts at `start` is written. */
static void operand(struct writer *w, size_t start, int is_time) {
    struct level *l = &w->level[w->depth];

    w->operand = start;
    w->time = l->sum == '-' && is_time ? 0 : is_time || l->sum; /* a time less a time is none */
}

static void no_operand(struct writer *w) {
    w->level[w->depth].sum = 0;
    w->time = 0;
}

/* A text where a time is asked for is one. */
static void put_text(struct writer *w, struct token t, struct token prev) {
    struct level *l = &w->level[w->depth];
    size_t start = at_end(w);
    int time = (sql_is_sign(prev, "<>=!") && l->compared) || is_before_time(t) ||
               (l->between && (sql_is(prev, "between") || sql_is(prev, "and")));

    if (time)
        fputs("to_timestamp(", w->f);
    put(w, t);
    if (time)
        fputc(')', w->f);
    operand(w, start, time);
}

static void open_level(struct writer *w, struct token name, size_t start) {
    fputc('(', w->f);
    w->depth++;
    w->level[w->depth] = (struct level){.name = name, .start = start, .inside = at_end(w)};
    w->time = 0;
}

static void close_level(struct writer *w) {
    struct level l = w->level[w->depth];
    int inner = w->time;

    /* datetime(timestamp) of SQLite is that of a day of the Julian calendar */
    if (inner && l.commas == sql_is(l.name, "strftime") &&
        sql_is_one_of(l.name, " datetime date time strftime "))
        fputs(", 'unixepoch'", w->f);
    fputc(')', w->f);
    if (w->depth == 0)
        return;
    w->depth--;
    operand(w, l.start,
            l.made_time || sql_is_one_of(l.name, gives_time) ||
                (inner && (l.name.kind == END || sql_is_one_of(l.name, " min max coalesce "))));
}

/* The name of a type at `t`, to its last token: "double precision", "numeric(10, 2)", "timestamp with time zone". */
static struct token type_at(struct token t) {
    struct token next = sql_after(t);

    while (sql_is_one_of(next, " precision varying with without time zone ") ||
           sql_is_sign(next, "(")) {
        t = sql_is_sign(next, "(") ? sql_closing(next) : next;
        next = sql_after(t);
    }
    return t;
}

static const char times[] = " timestamp timestamptz datetime date ";

/* x::type at the colons. *last: the type's last token. */
static int cast(struct writer *w, struct token colon, struct token *last) {
    struct token type = sql_after(sql_after(colon));
    const char *begin = sql_is(type, "date")         ? "date_trunc('day', "
                        : sql_is_one_of(type, times) ? "to_timestamp("
                        : sql_is(type, "interval")   ? "interval("
                                                     : "CAST(";
    int err = put_before(w, w->operand, w->operand, begin);

    *last = type_at(type);
    if (*begin == 'C')
        fprintf(w->f, " AS %.*s", (int)(last->p + last->n - type.p), type.p);
    fputc(')', w->f);
    w->time = sql_is_one_of(type, times);
    return err;
}

/* Of the tokens from `from` to before `to`: in SQLite's words. */
static int put_part(struct writer *w, struct token from, struct token to, char *why) {
    char *part = strndup(from.p, (size_t)(to.p - from.p)), *text = NULL;
    int err = part ? sql_dialect(part, &text, why) : -ENOMEM;

    if (!err)
        fputs(text, w->f);
    free(text);
    free(part);
    return err;
}

/* percentile_cont(0.9) WITHIN GROUP (ORDER BY x [DESC]) at its name: percentile_cont(x, 0.9). 1: it is something else. */
static int within_group(struct writer *w, struct token name, struct token *last, char *why) {
    struct token open = sql_after(name), close = sql_closing(open), within = sql_after(close);
    struct token list = sql_after(sql_after(within)), x = sql_after(sql_after(sql_after(list))),
                 end = sql_closing(list);
    struct token direction = x;

    if (!sql_is_sign(open, "(") || !sql_is(within, "within") ||
        !sql_is(sql_after(within), "group") || !sql_is_sign(list, "(") ||
        !sql_is(sql_after(list), "order") || end.kind == END)
        return 1;
    for (struct token t = x; t.p < end.p; t = sql_after(t))
        direction = t;
    int desc = sql_is(direction, "desc");
    size_t start = at_end(w);
    put(w, name);
    fputc('(', w->f);
    int err = put_part(w, x, desc || sql_is(direction, "asc") ? direction : end, why);
    fputs(desc ? ", 1 - (" : ", (", w->f);
    if (!err)
        err = put_part(w, sql_after(open), close, why);
    fputs("))", w->f);
    operand(w, start, 0);
    *last = end;
    return err;
}

/* A word that other engines know and SQLite not, and all that belongs to it. 1: it is none; *last: the last token of it. */
static int put_other_word(struct writer *w, struct token t, struct token *last, char *why) {
    static const char *const same[][2] = {{"ilike", "LIKE"},
                                          {"string_agg", "group_concat"},
                                          {"array_agg", "json_group_array"},
                                          {"bool_and", "min"},
                                          {"bool_or", "max"},
                                          {"every", "min"},
                                          {"list", "json_group_array"},
                                          {"nvl", "ifnull"},
                                          {"strpos", "instr"},
                                          {"char_length", "length"},
                                          {"variance", "var_samp"},
                                          {"current_timestamp", "now()"},
                                          {"current_date", "date_trunc('day', now())"},
                                          {"localtimestamp", "now()"}};
    struct token open = sql_after(t), field = sql_after(open);
    struct level *l = &w->level[w->depth];
    double seconds = 0;
    int err;

    *last = t;
    if (sql_is(t, "interval") && (err = interval(t, last, &seconds, why)) <= 0) {
        if (!err)
            fprintf(w->f, "(%.17g)", seconds);
        operand(w, at_end(w), 0);
        return err;
    }
    if (sql_is(t, "extract") && sql_is_sign(open, "(") && sql_is(sql_after(field), "from")) {
        size_t start = at_end(w);
        fputs("date_part", w->f);
        open_level(w, t, start);
        fprintf(w->f, "'%.*s',", (int)field.n, field.p);
        *last = sql_after(field);
        return 0;
    }
    if (sql_is_one_of(
            t,
            " percentile_cont percentile_disc approx_percentile_cont quantile_cont quantile_disc ") &&
        (err = within_group(w, t, last, why)) <= 0)
        return err;
    if (sql_is_one_of(t, times) && open.kind == STRING && isdigit((unsigned char)open.p[1])) {
        size_t start = at_end(w); /* TIMESTAMP '2026-01-31 12:00:00' */
        fprintf(w->f, "to_timestamp(%.*s)", (int)open.n, open.p);
        operand(w, start, 1);
        *last = open;
        return 0;
    }
    if (sql_is(t, "as") && sql_is(l->name, "cast") && sql_is_one_of(open, times) &&
        sql_is_sign(sql_after(type_at(open)), ")")) {
        *last = type_at(open);
        l->made_time = 1;
        return put_before(w, l->start, l->inside,
                          sql_is(open, "date") ? "date_trunc('day', " : "to_timestamp(");
    }
    if (sql_is(t, "strftime") && sql_is_sign(open, "(") && is_time_column(last_name(field))) {
        struct token comma = sql_after(last_name(field)),
                     form = sql_after(comma); /* DuckDB's order */
        if (sql_is_sign(comma, ",") && form.kind == STRING && sql_is_sign(sql_after(form), ")")) {
            fprintf(w->f, "strftime(%.*s, %.*s, 'unixepoch')", (int)form.n, form.p,
                    (int)(comma.p - field.p), field.p);
            *last = sql_after(form);
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (sql_is(t, same[i][0]) &&
            (sql_is_sign(open, "(") == !strchr(same[i][1], ')') || i == 0)) {
            operand(w, at_end(w), strchr(same[i][1], ')') != NULL);
            fputs(same[i][1], w->f);
            return 0;
        }
    return 1;
}

static int put_word(struct writer *w, struct token t, struct token prev, struct token *last,
                    char *why) {
    struct level *l = &w->level[w->depth];
    int err = sql_is_sign(prev, ".") ? 1 : put_other_word(w, t, last, why);

    if (err <= 0)
        return err;
    if (sql_is_one_of(t, no_name) && !sql_is_sign(prev, ".")) {
        if (sql_is(t, "between"))
            l->between = w->time ? 2 : 0;
        else if (l->between)
            l->between = sql_is(t, "and") ? l->between - 1 : 0;
        no_operand(w);
    } else {
        operand(w,
                sql_is_sign(prev, ".") ? w->operand : at_end(w) - (size_t)sql_is_sign(prev, ":@$"),
                is_time_column(t)); /* s.timestamp, :name */
    }
    put(w, t);
    return 0;
}

static int put_sign(struct writer *w, struct token t, struct token prev, struct token *last) {
    struct level *l = &w->level[w->depth];
    int named = (prev.kind == WORD && !sql_is_one_of(prev, no_name)) || prev.kind == QUOTED;

    *last = t;
    if (*t.p == ':' && t.p[1] == ':' && sql_after(sql_after(t)).kind == WORD)
        return cast(w, t, last);
    if (*t.p == '(' && w->depth + 1 < DEPTH) {
        open_level(w, named ? prev : (struct token){END, NULL, 0}, named ? w->operand : at_end(w));
        return 0;
    }
    if (*t.p == ')') {
        close_level(w);
        return 0;
    }
    put(w, t);
    if (*t.p == '.')
        return 0;
    if (strchr("<>=!", *t.p) && !sql_is_sign(prev, "<>=!"))
        l->compared = w->time;
    char sum = strchr("+-", *t.p) && w->time ? *t.p : 0;
    l->commas += *t.p == ',';
    no_operand(w);
    l->sum = sum;
    return 0;
}

int sql_dialect(const char *sql, char **out, char why[SQL_DIALECT_WHY]) {
    struct token t, table, prev = {END, NULL, 0};
    struct writer w = {.text = out};
    int begins = 1, err = 0; /* begins: of a statement */
    size_t size;

    *out = NULL;
    w.f = open_memstream(out, &size);
    if (!w.f)
        return -ENOMEM;
    for (const char *p = sql; !err && (t = sql_token(p)).kind != END; p = t.p + t.n) {
        struct token last = t;
        if (t.kind == SPACE) {
            put(&w, t);
            continue;
        }
        const char *instead = begins && t.kind == WORD ? show(t, &last, &table) : NULL;
        if (instead) {
            fputs(instead, w.f);
            if (table.p)
                put_table(w.f, table);
        } else if (begins && sql_is_one_of(t, " show describe desc ")) {
            snprintf(why, SQL_DIALECT_WHY,
                     "SHOW TABLES, VIEWS, SCHEMAS, ALL, COLUMNS FROM t, and DESCRIBE t are known");
            err = -EINVAL;
        } else if (t.kind == STRING) {
            put_text(&w, t, prev);
        } else if (t.kind == WORD) {
            err = put_word(&w, t, prev, &last, why);
        } else if (t.kind == SIGN) {
            err = put_sign(&w, t, prev, &last);
        } else {
            operand(&w, sql_is_sign(prev, ".") ? w.operand : at_end(&w), is_time_column(t));
            put(&w, t);
        }
        begins = t.kind == SIGN && *t.p == ';';
        if (begins)
            w.depth = 0, w.level[0] = (struct level){0}, w.time = 0;
        prev = t = last;
    }
    if (ferror(w.f) && !err)
        err = -ENOMEM;
    if (fclose(w.f) != 0 && !err)
        err = -ENOMEM;
    if (err) {
        free(*out);
        *out = NULL;
    }
    return err;
}
