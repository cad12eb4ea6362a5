/* SPDX-License-Identifier: Apache-2.0 */
#include "thin.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char *key;
    struct thin_cell *cell;
};

struct thin {
    double t0, t1;
    uint32_t columns, most, nrows, cap, mask;
    uint32_t *slots; /* hash table by key, with open addressing: row's index + 1, 0 = empty */
    struct row *row;
    uint32_t last; /* the row asked for last, which is tried first: values mostly come row by row */
    int failed;
};

int thin_new(struct thin **out, double t0, double t1, uint32_t columns, uint32_t most_cells) {
    struct thin *t = calloc(1, sizeof *t);

    if (!t)
        return -ENOMEM;
    t->t0 = t0;
    t->t1 = t1 > t0 ? t1 : t0 + 1;
    t->columns = columns;
    t->most = most_cells;
    *out = t;
    return 0;
}

void thin_free(struct thin *t) {
    if (!t)
        return;
    for (uint32_t i = 0; i < t->nrows; i++) {
        free(t->row[i].key);
        free(t->row[i].cell);
    }
    free(t->row);
    free(t->slots);
    free(t);
}

static uint32_t hash(const char *s) {
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h ^ h >> 15;
}

static int grow(struct thin *t) {
    uint32_t cap = t->cap ? t->cap * 2 : 64, mask = cap * 2 - 1;
    struct row *rows = realloc(t->row, cap * sizeof *rows);

    if (!rows)
        return -ENOMEM;
    t->row = rows;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < t->nrows; i++) {
        uint32_t h = hash(t->row[i].key);
        while (slots[h & mask])
            h++;
        slots[h & mask] = i + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->mask = mask;
    t->cap = cap;
    return 0;
}

static void join(struct thin_cell *to, const struct thin_cell *from) {
    if (!from->count)
        return;
    if (!to->count || from->min < to->min)
        to->min = from->min;
    if (!to->count || from->max > to->max)
        to->max = from->max;
    to->sum += from->sum;
    to->count += from->count;
}

void thin_halve(struct thin *t) {
    t->columns /= 2;
    for (uint32_t r = 0; r < t->nrows; r++) {
        struct thin_cell *c = t->row[r].cell;
        for (uint32_t i = 0; i < t->columns; i++) {
            struct thin_cell cell = c[2 * i];
            join(&cell, &c[2 * i + 1]);
            c[i] = cell;
        }
        struct thin_cell *less = realloc(c, t->columns * sizeof *c);
        t->row[r].cell = less ? less : c;
    }
}

uint32_t thin_row(struct thin *t, const char *key) {
    if (t->nrows && strcmp(t->row[t->last].key, key) == 0)
        return t->last;
    if (t->nrows == t->cap && grow(t) < 0) {
        t->failed = 1;
        return 0;
    }
    uint32_t h = hash(key);
    for (; t->slots[h & t->mask]; h++) {
        uint32_t i = t->slots[h & t->mask] - 1;
        if (strcmp(t->row[i].key, key) == 0)
            return t->last = i;
    }
    while (t->columns > 16 && (uint64_t)(t->nrows + 1) * t->columns > t->most)
        thin_halve(t);
    struct row *r = &t->row[t->nrows];
    r->key = strdup(key);
    r->cell = calloc(t->columns, sizeof *r->cell);
    if (!r->key || !r->cell) {
        free(r->key);
        free(r->cell);
        t->failed = 1;
        return 0;
    }
    t->slots[h & t->mask] = t->nrows + 1;
    return t->last = t->nrows++;
}

/* Returns the column of a time; times outside belong to the first or the last column. */
static uint32_t column(const struct thin *t, double at) {
    double c = floor((at - t->t0) / (t->t1 - t->t0) * t->columns);

    return c < 0 ? 0 : c >= t->columns ? t->columns - 1 : (uint32_t)c;
}

void thin_add(struct thin *t, uint32_t row, double at, double length, double v) {
    if (row >= t->nrows || !isfinite(v) || !isfinite(at))
        return;
    uint32_t from = column(t, at), to = length > 0 ? column(t, at + length) : from;
    struct thin_cell one = {.min = (float)v, .max = (float)v, .sum = v, .count = 1};
    for (uint32_t c = from; c <= to; c++)
        join(&t->row[row].cell[c], &one);
}

void thin_spread(struct thin *t, uint32_t row, double at, double length) {
    if (row >= t->nrows || !isfinite(length) || !isfinite(at) || length < 0)
        return;
    double width = (t->t1 - t->t0) / t->columns, end = at + length;
    uint32_t from = column(t, at), to = column(t, end);
    for (uint32_t c = from; c <= to; c++) {
        double left = t->t0 + c * width, a = at > left ? at : left,
               b = end < left + width ? end : left + width;
        struct thin_cell one = {
            .min = (float)length, .max = (float)length, .sum = b > a ? b - a : 0, .count = 1};
        join(&t->row[row].cell[c], &one);
    }
}

uint32_t thin_rows(const struct thin *t) {
    return t->nrows;
}

uint32_t thin_columns(const struct thin *t) {
    return t->columns;
}

const char *thin_key(const struct thin *t, uint32_t row) {
    return t->row[row].key;
}

const struct thin_cell *thin_cell(const struct thin *t, uint32_t row, uint32_t c) {
    return &t->row[row].cell[c];
}

int thin_failed(const struct thin *t) {
    return t->failed;
}
