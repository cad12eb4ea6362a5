/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_grid.c - writes rows over time as a matrix of bytes for the heat map (report.h).
 *
 * A cell holds the extremes of its time, on a scale of at most 254 steps. For a thousand ranks and ten thousand steps that is more than a page may
 * hold, but neighbours are much alike: each byte is written as its difference from the one before it or above it, and zlib packs these
 * differences. If they still are too many bytes, the number of columns is halved until they fit; the extremes stay.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "page_json.h"
#include "report.h"
#include "thin.h"

#define COLUMNS       16384        /* number of columns before any are joined */
#define CELLS         (2u << 20)   /* most cells while values are read */
#define PACKED        (450u << 10) /* most bytes of a picture, before base64 */
#define LEAST_COLUMNS 64 /* columns are not halved further, even if the picture exceeds PACKED */

/* How a byte is written: as it is, less the one before it in its row, less the one above it. The page's 40_grid.js undoes it. */
enum differences { ITSELF, BEFORE, ABOVE, DIFFERENCES };

struct matrix {
    uint32_t rows, columns;
    uint8_t *most, *less; /* codes: of the largest value; by how much the smallest is below it */
    uint8_t *work;        /* the differences that are packed */
    uint8_t *packed[2];   /* of most and of less */
    uLongf npacked[2];
    enum differences by[2];
};

static void free_matrix(struct matrix *m) {
    free(m->most);
    free(m->less);
    free(m->work);
    free(m->packed[0]);
    free(m->packed[1]);
}

static int new_matrix(struct matrix *m, const struct thin *t) {
    *m = (struct matrix){.rows = thin_rows(t), .columns = thin_columns(t)};
    size_t n = (size_t)m->rows * m->columns;
    uLong bound = compressBound(n);

    m->most = calloc(n + 1, 1);
    m->less = calloc(n + 1, 1);
    m->work = malloc(n + 1);
    m->packed[0] = malloc(bound);
    m->packed[1] = malloc(bound);
    return m->most && m->less && m->work && m->packed[0] && m->packed[1];
}

/* Divides lo to hi into `steps`: on a logarithmic scale if both are positive. */
struct scale {
    double lo, hi;
    int steps;
};

/* Returns the number of steps: colours do not show differences below a fiftieth, and the noise in finer steps packs badly. */
static int steps_of(const struct scale *s) {
    if (!(s->hi > s->lo))
        return 1;
    return s->lo > 0 ? (int)fmin(254, fmax(32, ceil(log(s->hi / s->lo) / log(1.02)))) : 100;
}

/* Returns the code of a value: 0 is an empty cell, 1 is lo, steps + 1 is hi. */
static uint8_t code(double v, const struct scale *s) {
    double share = s->lo > 0 ? log(v / s->lo) / log(s->hi / s->lo) : (v - s->lo) / (s->hi - s->lo);

    return s->hi > s->lo ? (uint8_t)(1 + lround(s->steps * fmin(fmax(share, 0), 1))) : 1;
}

/* Returns a cell's largest value or, for a share, which part of the column is covered, in percent. */
static double most_of(const struct thin_cell *c, double width, int is_share) {
    return is_share ? 100 * c->sum / width : (double)c->max;
}

static struct scale scale_of(const struct thin *t, double width, int is_share) {
    struct scale s = {INFINITY, -INFINITY, 1};

    for (uint32_t r = 0; r < thin_rows(t); r++)
        for (uint32_t i = 0; i < thin_columns(t); i++) {
            const struct thin_cell *c = thin_cell(t, r, i);
            if (!c->count)
                continue;
            s.lo = fmin(s.lo, is_share ? 0 : (double)c->min);
            s.hi = fmax(s.hi, most_of(c, width, is_share));
        }
    s.steps = steps_of(&s);
    return s;
}

static void fill(struct matrix *m, const struct thin *t, double width, int is_share,
                 const struct scale *s) {
    size_t at = 0;

    for (uint32_t r = 0; r < m->rows; r++)
        for (uint32_t i = 0; i < m->columns; i++, at++) {
            const struct thin_cell *c = thin_cell(t, r, i);
            m->most[at] = c->count ? code(most_of(c, width, is_share), s) : 0;
            m->less[at] = 0;
            if (c->count && !is_share && c->min < c->max)
                m->less[at] = (uint8_t)(m->most[at] - code((double)c->min, s));
        }
}

static uint8_t neighbour(const struct matrix *m, const uint8_t *row, uint32_t r, uint32_t i,
                         enum differences by) {
    if (by == BEFORE)
        return i ? row[i - 1] : 0;
    return by == ABOVE && r ? (row - m->columns)[i] : 0;
}

static void subtract(const struct matrix *m, const uint8_t *from, enum differences by) {
    for (uint32_t r = 0; r < m->rows; r++) {
        const uint8_t *row = from + (size_t)r * m->columns;
        uint8_t *to = m->work + (size_t)r * m->columns;
        for (uint32_t i = 0; i < m->columns; i++)
            to[i] = (uint8_t)(row[i] - neighbour(m, row, r, i, by));
    }
}

/* Packs `from` with the kind of differences that leaves the fewest bytes that are not 0. Returns Z_OK or zlib's error. */
static int pack(struct matrix *m, const uint8_t *from, int which) {
    size_t n = (size_t)m->rows * m->columns, least = SIZE_MAX;

    for (enum differences by = ITSELF; by < DIFFERENCES; by++) {
        size_t differ = 0;
        subtract(m, from, by);
        for (size_t i = 0; i < n; i++)
            differ += m->work[i] != 0;
        if (differ < least) {
            least = differ;
            m->by[which] = by;
        }
    }
    subtract(m, from, m->by[which]);
    m->npacked[which] = compressBound(n);
    return compress2(m->packed[which], &m->npacked[which], m->work, n, Z_DEFAULT_COMPRESSION);
}

static void put_packed(const struct report *r, const char *name, const struct matrix *m,
                       int which) {
    fprintf(r->out, ",\"%s\":[%d,", name, (int)m->by[which]);
    page_base64(r->out, m->packed[which], m->npacked[which]);
    fputc(']', r->out);
}

static void put_keys(const struct report *r, const struct thin *t) {
    fputs(",\"keys\":[", r->out);
    for (uint32_t i = 0; i < thin_rows(t); i++) {
        if (i)
            fputc(',', r->out);
        page_text(r->out, thin_key(t, i));
    }
    fprintf(r->out, "],\"columns\":%u", thin_columns(t));
}

static int put_grid(struct report *r, struct thin *t, int is_share) {
    double width;
    struct scale s;
    struct matrix m;
    int ok;

    for (;;) {
        width = (r->t1 - r->t0) / thin_columns(t);
        s = scale_of(t, width, is_share);
        if ((ok = new_matrix(&m, t))) {
            fill(&m, t, width, is_share, &s);
            ok = pack(&m, m.most, 0) == Z_OK && (is_share || pack(&m, m.less, 1) == Z_OK);
        }
        if (!ok || m.npacked[0] + m.npacked[1] <= PACKED || m.columns <= LEAST_COLUMNS)
            break;
        free_matrix(&m);
        thin_halve(t);
    }
    if (ok) {
        put_keys(r, t);
        fputs(",\"lo\":", r->out);
        page_real(r->out, s.lo, 6);
        fputs(",\"hi\":", r->out);
        page_real(r->out, s.hi, 6);
        fprintf(r->out, ",\"steps\":%d", s.steps);
        put_packed(r, "max", &m, 0);
        if (!is_share)
            put_packed(r, "less", &m, 1);
    }
    free_matrix(&m);
    return ok ? SQLITE_DONE : SQLITE_NOMEM;
}

static int grid_of(struct report *r, sqlite3_stmt *st, int is_share) {
    struct thin *t = NULL;
    int rc = thin_new(&t, 0, r->t1 - r->t0, COLUMNS, CELLS) == 0 ? SQLITE_ROW : SQLITE_NOMEM;

    while (rc == SQLITE_ROW && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(st, 0);
        uint32_t row = thin_row(t, key ? key : "");
        double at = sqlite3_column_double(st, 1) - r->t0, length = sqlite3_column_double(st, 2);
        if (is_share)
            thin_spread(t, row, at, length);
        else if (sqlite3_column_type(st, 3) != SQLITE_NULL)
            thin_add(t, row, at, length, sqlite3_column_double(st, 3));
    }
    if (t && thin_failed(t))
        rc = SQLITE_NOMEM;
    /* After an error, what was read so far is drawn all the same. */
    int put = t && rc != SQLITE_NOMEM ? put_grid(r, t, is_share) : rc;
    thin_free(t);
    return rc == SQLITE_DONE ? put : rc;
}

int report_grid(struct report *r, sqlite3_stmt *st) {
    return grid_of(r, st, 0);
}

int report_share(struct report *r, sqlite3_stmt *st) {
    return grid_of(r, st, 1);
}
