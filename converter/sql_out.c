/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_out.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sql_operand.h"
#include "when.h"

size_t sql_out_end(struct sql_out *w) {
    return (size_t)ftello(w->f);
}

/* Replaces the text written from `from` to `to` by `words`. */
int sql_out_before(struct sql_out *w, size_t from, size_t to, const char *words) {
    char *tail = fflush(w->f) == 0 ? strdup(*w->text + to) : NULL;

    if (!tail || fseeko(w->f, (off_t)from, SEEK_SET) != 0) {
        free(tail);
        return -ENOMEM;
    }
    /* no fewer bytes than before: what follows in the stream's memory would be read again */
    fprintf(w->f, "%-*s", (int)(to - from), words);
    fputs(tail, w->f);
    free(tail);
    return 0;
}

int sql_out_part(struct sql_out *w, struct token from, struct token to, char *why) {
    char *part = strndup(from.p, (size_t)(to.p - from.p)), *text = NULL;
    int err = part ? w->dialect(part, &text, why) : -ENOMEM;

    if (!err)
        fputs(text, w->f);
    free(text);
    free(part);
    return err;
}

void sql_out_put(struct sql_out *w, struct token t) {
    fwrite(t.p, 1, t.n, w->f);
}

void sql_out_seconds(struct sql_out *w, double seconds) {
    char text[32];

    snprintf(text, sizeof text, "%.17g", seconds);
    /* a real number: in whole ones a second by 2 is 0 */
    fprintf(w->f, "(%s%s)", text, strspn(text, "-0123456789") == strlen(text) ? ".0" : "");
}

/* Words that are neither operands nor functions, though a '(' or an operand may follow. */
const char sql_out_no_name[] =
    " and or not in like ilike between when then else end case select where on having by from as"
    " union all distinct exists over filter using values is escape glob limit offset set qualify ";
const char sql_out_gives_time[] =
    " now to_timestamp date_trunc date_bin time_bucket from_unixtime to_timestamp_seconds"
    " to_timestamp_millis to_timestamp_micros to_timestamp_nanos date_add make_timestamp make_date last_day to_date strptime try_strptime str_to_date ";

/* Returns the kind of a column of times in the views, or of a name that the text gives to a time. */
enum sql_kind sql_out_kind(const struct sql_out *w, struct token t) {
    int quoted = t.kind == QUOTED;
    char name[32];

    if ((t.kind != WORD && !quoted) || t.n >= sizeof name || t.n < 1 + 2 * (size_t)quoted)
        return SQL_PLAIN;
    for (size_t i = 0; i < w->names->n; i++)
        if (sql_same_name(w->names->name[i], t))
            return w->names->kind[i];
    for (size_t i = 0; i < t.n; i++)
        name[i] = (char)tolower((unsigned char)t.p[i]);
    name[t.n - (size_t)quoted] = 0;
    return when_is_column(name + quoted) || strcmp(name + quoted, "since") == 0 ||
                   strcmp(name + quoted, "seen") == 0
               ? SQL_TIME
               : SQL_PLAIN;
}

int sql_out_is_number(const struct sql_out *w, struct token t) {
    static const char columns[] =
        " rank src_rank dst_rank last_rank shortest_rank local_rank world_size step seq pid ppid tid depth lineno trace_id"
        " sample_id trigger_id parent_id size arrived complete level waiting cause came_last was_shortest collectives calls"
        " processes ranks hosts traces lost gil stacks nth bytes device attempt samples outside recomputed failed call_tid ";

    for (size_t i = 0; i < w->names->n; i++)
        if ((t.kind == WORD || t.kind == QUOTED) && sql_same_name(w->names->name[i], t))
            return !w->names->kind[i];
    if (t.kind == QUOTED && t.n > 2)
        t = (struct token){WORD, t.p + 1, t.n - 2};
    return sql_is_one_of(t, columns);
}

/* Notes that the text gives the last operand, if it is a time or a number, the name `t`. */
void sql_out_keep_name(struct sql_out *w, struct token t) {
    struct sql_names *names = w->names;

    if ((!w->time && !w->number) || (w->time && w->level[w->depth].spoilt) ||
        names->n == SQL_OUT_NAMES || (t.kind != WORD && t.kind != QUOTED) || sql_out_kind(w, t) ||
        sql_out_is_number(w, t))
        return;
    names->kind[names->n] = w->time;
    names->name[names->n++] = t;
}

/* Returns the last name of the chain (s.timestamp) that begins at `t`. */
struct token sql_out_last_name(struct token t) {
    for (struct token dot = sql_after(t); sql_is_sign(dot, "."); dot = sql_after(t))
        t = sql_after(dot);
    return t;
}

/* Returns the kind of the time that the string at `t` is compared with, if that follows the string. */
enum sql_kind sql_out_before_time(const struct sql_out *w, struct token t) {
    struct token next = sql_after(t);

    if (!sql_is_sign(next, "<>=!"))
        return SQL_PLAIN;
    while (sql_is_sign(next, "<>=!"))
        next = sql_after(next);
    if (sql_is_one_of(next, sql_out_gives_time))
        return sql_is_sign(sql_after(next), "(") ? SQL_TIME : SQL_PLAIN;
    next = sql_out_last_name(next);
    return sql_is_sign(sql_after(next), "(") ? SQL_PLAIN : sql_out_kind(w, next);
}

/* Notes that the last operand is of this kind, and starts at the offset `start`. */
void sql_out_operand(struct sql_out *w, size_t start, enum sql_kind kind) {
    struct sql_level *l = &w->level[w->depth];

    w->operand = start;
    w->number = l->arithmetic;
    if (l->sum && !(l->sum == '-' && kind)) /* a time minus a time is no time */
        w->time = l->sum_of;
    else
        w->time = l->sum ? SQL_PLAIN : kind;
}

int sql_out_text_begin(struct sql_out *w, struct token t, enum sql_kind kind) {
    struct sql_level *l = &w->level[w->depth];
    const char *end = kind && !l->text_end ? sql_operand_text(t) : NULL;

    if (!end)
        return 0;
    fputc(' ', w->f);
    l->text_start = sql_out_end(w);
    l->text_end = end;
    fputs(kind == SQL_CLOCK ? "time_of_day(" : "to_timestamp(", w->f);
    return 1;
}

void sql_out_text_end(struct sql_out *w, const char *end) {
    struct sql_level *l = &w->level[w->depth];

    if (!l->text_end || end < l->text_end)
        return;
    fputc(')', w->f);
    l->text_end = NULL;
    sql_out_operand(w, l->text_start, SQL_TIME);
}

int sql_out_text_before(struct sql_out *w, size_t end) {
    if (fflush(w->f) != 0)
        return -ENOMEM;
    if (w->operand >= end || !sql_operand_gives_text(sql_token(*w->text + w->operand)))
        return 0;
    int err = sql_out_before(w, end, end, ")");
    return err ? err : sql_out_before(w, w->operand, w->operand, "to_timestamp(");
}

/* Returns the kind of the argument, or of the expression in parentheses, that ends here. */
enum sql_kind sql_out_argument(const struct sql_out *w) {
    const struct sql_level *l = &w->level[w->depth];

    return l->one_of ? l->one_of : l->spoilt ? SQL_PLAIN : w->time;
}

void sql_out_no_operand(struct sql_out *w) {
    w->level[w->depth].sum = 0;
    w->level[w->depth].arithmetic = 0;
    w->time = SQL_PLAIN;
    w->number = 0;
}

/* Functions that return one of their arguments. */
const char sql_out_picks[] =
    " min max coalesce ifnull nvl greatest least nullif lag lead first_value last_value nth_value first last any_value"
    " arg_max arg_min max_by min_by argmax argmin median mode avg ";
/* Functions that return a number, of anything. */
static const char gives_number[] =
    " count sum total abs round length char_length octet_length instr strpos row_number rank dense_rank ntile date_part"
    " extract year month day hour minute second epoch date_diff datediff stddev var variance percentile percentile_cont"
    " quantile approx_percentile_cont count_if approx_distinct floor ceil trunc sqrt mod ";

void sql_out_open(struct sql_out *w, struct token name, size_t start) {
    struct sql_level *l = &w->level[w->depth];
    enum sql_kind in = name.kind == END ? l->in : SQL_PLAIN;
    int numbers = name.kind == END && l->in_number;

    fputc('(', w->f);
    if (!l->is_list && name.kind == END) {
        l->in = SQL_PLAIN;
        l->in_number = 0;
    }
    w->depth++;
    w->level[w->depth] = (struct sql_level){.name = name,
                                            .start = start,
                                            .inside = sql_out_end(w),
                                            .in = in,
                                            .in_number = numbers,
                                            .is_list = in || numbers};
    w->time = SQL_PLAIN;
}

void sql_out_close(struct sql_out *w) {
    struct sql_level l = w->level[w->depth];
    int picks = sql_is_one_of(l.name, sql_out_picks);
    enum sql_kind inner = picks ? sql_out_argument(w) : w->time, made = l.made;
    int number = l.is_pass                             ? l.numbers
                 : made                                ? 0
                 : sql_is_one_of(l.name, gives_number) ? 1
                 : picks                               ? l.numbers || w->number
                 : l.name.kind == END && l.commas == 0 ? w->number
                                                       : 0;

    /* SQLite's datetime(timestamp) takes the number for a Julian day: make it seconds */
    if (inner && inner != SQL_CLOCK && l.commas == sql_is(l.name, "strftime") &&
        sql_is_one_of(l.name, " datetime date time strftime "))
        fputs(", 'unixepoch'", w->f);
    fputc(')', w->f);
    if (w->depth == 0)
        return;
    w->depth--;
    if (l.is_pass)
        ;
    else if (!made && sql_is_one_of(l.name, sql_out_gives_time))
        made = SQL_TIME;
    else if (!made && (sql_is_one_of(l.name, sql_out_picks) || (!l.spoilt && l.name.kind == END)))
        made = inner;
    sql_out_operand(w, l.start, made);
    w->number |= number && !made;
}
