/* SPDX-License-Identifier: Apache-2.0 */
/* report_kinds.c - writes results of SQL as JSON, each thinned to what its picture can show (report.h). */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page_json.h"
#include "question.h"
#include "report.h"
#include "thin.h"

#define LINE_CELLS (512u << 10) /* most cells while values are read */
#define LINES_PUT                                                                                  \
    40 /* most lines in a picture: those that reach highest and those that reach lowest */
#define CELLS_PUT  12288       /* most cells of all lines in a picture */
#define PACK       (64u << 10) /* bytes: longer results of kind `rows` are packed */
#define PART_COLS  400
#define MOST_PARTS 10
#define OUTLIERS   150
#define POINTS     6000 /* up to so many values are drawn one by one */

/* ---- the largest values, and all of them while they are few ---- */

struct point {
    double t, v;
    int64_t step;
    char key[24];
};

struct points {
    struct point top[OUTLIERS]; /* a heap with the least on top */
    unsigned ntop;
    struct point *all;
    size_t nall; /* number of values; > POINTS: too many to be kept */
};

static void sink(struct point *heap, unsigned n, unsigned i) {
    for (unsigned c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && heap[c + 1].v < heap[c].v)
            c++;
        if (heap[i].v <= heap[c].v)
            return;
        struct point p = heap[i];
        heap[i] = heap[c];
        heap[c] = p;
    }
}

static void keep(struct points *p, const struct point *one) {
    if (p->ntop < OUTLIERS) {
        p->top[p->ntop++] = *one;
        for (unsigned i = p->ntop == OUTLIERS ? OUTLIERS / 2 : 0; i-- > 0;)
            sink(p->top, p->ntop, i);
    } else if (one->v > p->top[0].v) {
        p->top[0] = *one;
        sink(p->top, p->ntop, 0);
    }
    if (p->nall < POINTS && (p->all || (p->all = malloc(POINTS * sizeof *p->all))))
        p->all[p->nall] = *one;
    p->nall++;
}

static void put_points(const struct report *r, const char *name, const struct point *p, size_t n) {
    fprintf(r->out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",[" : "[", r->out);
        page_real(r->out, p[i].t, 7);
        fputc(',', r->out);
        page_real(r->out, p[i].v, 5);
        fputc(',', r->out);
        page_text(r->out, p[i].key);
        fprintf(r->out, ",%lld]", (long long)p[i].step);
    }
    fputc(']', r->out);
}

/* ---- columns of a thinned row ---- */

static const char *key_of(sqlite3_stmt *st) {
    const char *key = (const char *)sqlite3_column_text(st, 0);
    return key ? key : "";
}

/* Writes the columns that hold something, as "c", and the least, mean and largest value of each. */
static void put_row(const struct report *r, const struct thin *t, uint32_t row) {
    enum { LEAST, MEAN, MOST };
    static const char *const names[] = {"],\"min\":[", "],\"mean\":[", "],\"max\":["};
    const char *comma = "";
    int differ = 0;

    fputs("{\"c\":[", r->out);
    for (uint32_t c = 0; c < thin_columns(t); c++) {
        const struct thin_cell *cell = thin_cell(t, row, c);
        if (!cell->count)
            continue;
        fprintf(r->out, "%s%u", comma, c);
        comma = ",";
        differ |= cell->min < cell->max;
    }
    /* If each column has only one value, "max" says it all. */
    for (int k = differ ? LEAST : MOST; k <= MOST; k++) {
        fputs(names[k], r->out);
        comma = "";
        for (uint32_t c = 0; c < thin_columns(t); c++) {
            const struct thin_cell *cell = thin_cell(t, row, c);
            if (!cell->count)
                continue;
            fputs(comma, r->out);
            comma = ",";
            page_real(r->out,
                      k == LEAST  ? (double)cell->min
                      : k == MOST ? (double)cell->max
                                  : cell->sum / cell->count,
                      5);
        }
    }
    fputs("]}", r->out);
}

/* ---- the kinds; each runs the statement to its end and returns SQLite's code ---- */

static int band(struct report *r, sqlite3_stmt *st) {
    struct points *p = calloc(1, sizeof *p);
    struct thin *t = NULL;
    int rc = p && thin_new(&t, 0, r->t1 - r->t0, THIN_COLUMNS, THIN_COLUMNS) == 0 ? SQLITE_ROW
                                                                                  : SQLITE_NOMEM;

    uint32_t row = t ? thin_row(t, "all") : 0;
    while (rc == SQLITE_ROW && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct point one = {.t = sqlite3_column_double(st, 1) - r->t0,
                            .v = sqlite3_column_double(st, 2),
                            .step = -1};
        if (sqlite3_column_type(st, 2) == SQLITE_NULL || !isfinite(one.v))
            continue;
        if (sqlite3_column_count(st) > 3 && sqlite3_column_type(st, 3) != SQLITE_NULL)
            one.step = sqlite3_column_int64(st, 3);
        snprintf(one.key, sizeof one.key, "%s", key_of(st));
        thin_add(t, row, one.t, 0, one.v);
        keep(p, &one);
    }
    if (t && p) {
        fprintf(r->out, ",\"columns\":%u,\"count\":%zu,\"row\":", thin_columns(t), p->nall);
        put_row(r, t, row);
        put_points(r, "largest", p->top, p->ntop);
        if (p->nall <= POINTS && p->all)
            put_points(r, "points", p->all, p->nall);
        free(p->all);
    }
    thin_free(t);
    free(p);
    return rc;
}

/* The last value of a row's counter: its time, the value, and its process. */
struct counter {
    double at, v;
    int64_t process;
};

/* Returns by how much per second a counter grew since the previous row of its key and process, which a[row] keeps; NAN for the first. lag() in SQL
 * would do this, but its window takes five times as long as reading the rows, of which a day of 64 ranks has millions. */
static double rate(struct counter **a, uint32_t *n, uint32_t row, struct counter now) {
    double grown = NAN;

    if (row >= *n) {
        struct counter *more = realloc(*a, (row + 1) * 2 * sizeof **a);
        if (!more)
            return NAN;
        for (uint32_t i = *n; i < (row + 1) * 2; i++)
            more[i] = (struct counter){.process = -1};
        *a = more;
        *n = (row + 1) * 2;
    }
    if ((*a)[row].process == now.process && now.at > (*a)[row].at)
        grown = (now.v - (*a)[row].v) / (now.at - (*a)[row].at);
    (*a)[row] = now;
    return grown;
}

/* A line's highest and lowest value, and its row. */
struct reach {
    double most, least;
    uint32_t row;
};

static int by_most(const void *a, const void *b) {
    const struct reach *x = a, *y = b;
    return x->most < y->most ? 1 : x->most > y->most ? -1 : x->row < y->row ? -1 : 1;
}

static int by_least(const void *a, const void *b) {
    const struct reach *x = a, *y = b;
    return x->least > y->least ? 1 : x->least < y->least ? -1 : x->row < y->row ? -1 : 1;
}

static int by_row(const void *a, const void *b) {
    const struct reach *x = a, *y = b;
    return x->row < y->row ? -1 : x->row > y->row;
}

static struct reach reach_of(const struct thin *t, uint32_t row) {
    struct reach reach = {.most = -INFINITY, .least = INFINITY, .row = row};

    for (uint32_t c = 0; c < thin_columns(t); c++) {
        const struct thin_cell *cell = thin_cell(t, row, c);
        if (!cell->count)
            continue;
        reach.most = fmax(reach.most, (double)cell->max);
        reach.least = fmin(reach.least, (double)cell->min);
    }
    return reach;
}

/* Writes the lines. If there are more than a picture can show, half of those shown reach highest, and half are those of the rest that reach lowest. */
static int put_lines(const struct report *r, struct thin *t) {
    uint32_t n = thin_rows(t), put = n < LINES_PUT ? n : LINES_PUT;
    struct reach *line = calloc((size_t)n + 1, sizeof *line);

    if (!line)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        line[i] = reach_of(t, i);
    if (put < n) {
        qsort(line, n, sizeof *line, by_most);
        qsort(line + put / 2, n - put / 2, sizeof *line, by_least);
        qsort(line, put, sizeof *line, by_row);
    }
    while ((uint64_t)put * thin_columns(t) > CELLS_PUT && thin_columns(t) > 16)
        thin_halve(t);
    fprintf(r->out, ",\"of\":%u,\"columns\":%u,\"keys\":[", n, thin_columns(t));
    for (uint32_t i = 0; i < put; i++) {
        if (i)
            fputc(',', r->out);
        page_text(r->out, thin_key(t, line[i].row));
    }
    fputs("],\"rows\":[", r->out);
    for (uint32_t i = 0; i < put; i++) {
        if (i)
            fputc(',', r->out);
        put_row(r, t, line[i].row);
    }
    fputc(']', r->out);
    free(line);
    return 0;
}

static int lines_of(struct report *r, sqlite3_stmt *st, int are_counters) {
    struct thin *t = NULL;
    struct counter *before = NULL;
    uint32_t nbefore = 0;
    int rc =
        thin_new(&t, 0, r->t1 - r->t0, THIN_COLUMNS, LINE_CELLS) == 0 ? SQLITE_ROW : SQLITE_NOMEM;

    while (rc == SQLITE_ROW && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (sqlite3_column_type(st, 2) == SQLITE_NULL)
            continue;
        uint32_t row = thin_row(t, key_of(st));
        double at = sqlite3_column_double(st, 1), v = sqlite3_column_double(st, 2);
        if (are_counters)
            v = rate(&before, &nbefore, row, (struct counter){at, v, sqlite3_column_int64(st, 3)});
        if (!isnan(v))
            thin_add(t, row, at - r->t0, 0, v);
    }
    free(before);
    if (t && put_lines(r, t) < 0)
        rc = SQLITE_NOMEM;
    if (t && thin_failed(t))
        rc = SQLITE_NOMEM;
    thin_free(t);
    return rc;
}

static int lines(struct report *r, sqlite3_stmt *st) {
    return lines_of(r, st, 0);
}

static int rates(struct report *r, sqlite3_stmt *st) {
    return lines_of(r, st, 1);
}

static int parts(struct report *r, sqlite3_stmt *st) {
    struct {
        double sum[MOST_PARTS];
        uint32_t count;
    } *col = calloc(PART_COLS, sizeof *col);
    int n = sqlite3_column_count(st) - 1, rc = col ? SQLITE_ROW : SQLITE_NOMEM;
    const char *comma = "";

    n = n > MOST_PARTS ? MOST_PARTS : n;
    while (rc == SQLITE_ROW && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        double at = (sqlite3_column_double(st, 0) - r->t0) / (r->t1 - r->t0) * PART_COLS;
        unsigned c = at < 0 ? 0 : at >= PART_COLS ? PART_COLS - 1 : (unsigned)at;
        for (int i = 0; i < n; i++)
            col[c].sum[i] += sqlite3_column_double(st, i + 1);
        col[c].count++;
    }
    fprintf(r->out, ",\"columns\":%d,\"rows\":[", PART_COLS);
    for (unsigned c = 0; col && c < PART_COLS; c++) {
        if (!col[c].count)
            continue;
        fprintf(r->out, "%s[%u", comma, c);
        comma = ",";
        for (int i = 0; i < n; i++) {
            fputc(',', r->out);
            page_real(r->out, col[c].sum[i] / col[c].count, 4);
        }
        fputc(']', r->out);
    }
    fputc(']', r->out);
    free(col);
    return rc;
}

static int rows_of(FILE *out, sqlite3_stmt *st, uint64_t most, uint64_t *count) {
    int n = sqlite3_column_count(st), rc;

    fputc('[', out);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if ((*count)++ >= most)
            continue;
        fputs(*count > 1 ? ",\n[" : "[", out);
        for (int i = 0; i < n; i++) {
            if (i)
                fputc(',', out);
            page_column(out, st, i);
        }
        fputc(']', out);
    }
    fputc(']', out);
    return rc;
}

/* Writes the rows. Many rows are much alike: packed they take a tenth. */
static int put_rows(struct report *r, sqlite3_stmt *st, uint64_t most) {
    uint64_t count = 0;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return SQLITE_NOMEM;
    int rc = rows_of(f, st, most, &count);
    if (fclose(f) != 0) {
        free(text);
        return SQLITE_NOMEM;
    }
    if (most == REPORT_MANY && n > PACK) {
        fputs(",\"packed\":", r->out);
        if (page_packed(r->out, text, n) < 0)
            rc = SQLITE_NOMEM;
    } else {
        fputs(",\"rows\":", r->out);
        fwrite(text, 1, n, r->out);
    }
    free(text);
    fprintf(r->out, ",\"count\":%llu", (unsigned long long)count);
    return rc;
}

static int table(struct report *r, sqlite3_stmt *st) {
    return put_rows(r, st, REPORT_ROWS);
}

static int rows(struct report *r, sqlite3_stmt *st) {
    return put_rows(r, st, REPORT_MANY);
}

static const struct kind {
    const char *name;
    int (*run)(struct report *r, sqlite3_stmt *st);
} kinds[] = {{"table", table}, {"band", band},   {"grid", report_grid}, {"share", report_share},
             {"lines", lines}, {"rates", rates}, {"parts", parts},      {"rows", rows}};

/* Returns the kind that a title begins with ("band: ..."); without one it is a table. Sets *rest to the title without the kind. */
static const struct kind *kind_of(const char *title, const char **rest) {
    *rest = title;
    for (size_t i = 0; title && i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].name);
        if (strncmp(title, kinds[i].name, n) == 0 && strncmp(title + n, ": ", 2) == 0) {
            *rest = title + n + 2;
            return &kinds[i];
        }
    }
    return &kinds[0];
}

int report_part(struct report *r, const struct question_part *part, int is_evidence) {
    const char *title, *sql = part->sql, *wrong = NULL;
    const struct kind *kind = kind_of(is_evidence ? NULL : part->title, &title);
    int rc = SQLITE_OK;

    report_deadline(r);
    if (is_evidence)
        title = part->title;
    fprintf(r->out, "{\"kind\":\"%s\",\"title\":", kind->name);
    page_text(r->out, title ? title : "");
    fputs(",\"sql\":", r->out);
    page_text(r->out, sql);
    while (rc == SQLITE_OK && sql && *sql) {
        sqlite3_stmt *st = NULL;
        if ((rc = sqlite3_prepare_v2(r->db, sql, -1, &st, &sql)) != SQLITE_OK) {
            wrong = sqlite3_errmsg(r->db);
        } else if (st && sqlite3_column_count(st) == 0) {
            if ((rc = sqlite3_step(st)) == SQLITE_DONE)
                rc = SQLITE_OK;
            else
                wrong = rc == SQLITE_INTERRUPT ? NULL : sqlite3_errmsg(r->db);
        } else if (st) {
            fputs(",\"names\":[", r->out);
            for (int i = 0; i < sqlite3_column_count(st); i++) {
                if (i)
                    fputc(',', r->out);
                page_text(r->out, sqlite3_column_name(st, i));
            }
            fputc(']', r->out);
            rc = kind->run(r, st);
            if (rc != SQLITE_DONE)
                wrong = rc == SQLITE_NOMEM ? "no memory" : sqlite3_errmsg(r->db);
            sql = NULL; /* a part has one result */
        }
        if (rc == SQLITE_INTERRUPT)
            wrong = "it took too long (probing report --timeout S)";
        r->damaged |= rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
        if (wrong) {
            fputs(",\"wrong\":", r->out);
            page_text(r->out, wrong);
        }
        sqlite3_finalize(st);
    }
    fputc('}', r->out);
    return rc == SQLITE_INTERRUPT ? -ETIMEDOUT : 0;
}
