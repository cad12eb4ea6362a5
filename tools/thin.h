/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thin.h - values over time in as many columns as a picture has: the extremes of each column are kept, never dropped.
 *
 *     struct thin *t;
 *     thin_new(&t, t0, t1, THIN_COLUMNS, 100000);         // seconds; at most so many cells in all
 *     thin_add(t, thin_row(t, "rank 3"), at, length, v);  // for each value
 *     for (r = 0; r < thin_rows(t); r++) for (c = 0; c < thin_columns(t); c++) ... thin_cell(t, r, c)->max ...
 *     thin_free(t);
 *
 * A row is made for each key; when there are too many cells, two neighbouring columns become one in all rows. Memory is that of the
 * cells, whatever the number of values. Values that are not finite are counted and left out. One thread. Out of memory is
 * sticky: thin_failed().
 */
#ifndef PROBING_TOOLS_THIN_H
#define PROBING_TOOLS_THIN_H

#include <stdint.h>

#define THIN_COLUMNS 2048 /* as many as a wide screen shows */

struct thin_cell {
    float min, max;
    double sum;     /* of the values; of thin_spread(): seconds of the column that are covered */
    uint32_t count; /* 0: empty */
};

struct thin;

/* 0 or -ENOMEM. t1 > t0; columns: before any are joined, a power of two. */
int thin_new(struct thin **out, double t0, double t1, uint32_t columns, uint32_t most_cells);
void thin_free(struct thin *t);
/* The row of a key, made when new. */
uint32_t thin_row(struct thin *t, const char *key);
/* A value that holds from `at` for `length` seconds (0: at one time). */
void thin_add(struct thin *t, uint32_t row, double at, double length, double v);
/* Time that is covered from `at` for `length` seconds, each column getting its own part of it. */
void thin_spread(struct thin *t, uint32_t row, double at, double length);

/* Two neighbouring columns become one, in all rows. More than one column. */
void thin_halve(struct thin *t);

uint32_t thin_rows(const struct thin *t);
uint32_t thin_columns(const struct thin *t);
const char *thin_key(const struct thin *t, uint32_t row);
const struct thin_cell *thin_cell(const struct thin *t, uint32_t row, uint32_t column);
int thin_failed(const struct thin *t);

#endif
