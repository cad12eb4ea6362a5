/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thin.h - reduces values over time to as many columns as a picture has; the extremes of each column are always preserved.
 *
 *     struct thin *t;
 *     thin_new(&t, t0, t1, THIN_COLUMNS, 100000);         // times in seconds; at most that many cells in total
 *     thin_add(t, thin_row(t, "rank 3"), at, length, v);  // for each value
 *     for (r = 0; r < thin_rows(t); r++) for (c = 0; c < thin_columns(t); c++) ... thin_cell(t, r, c)->max ...
 *     thin_free(t);
 *
 * Each key gets a row. When there are too many cells, neighbouring columns are merged in pairs, in all rows. Memory depends on the number
 * of cells, not of values. Values that are not finite are counted and left out. One thread. Out of memory is sticky: thin_failed().
 */
#ifndef PROBING_TOOLS_THIN_H
#define PROBING_TOOLS_THIN_H

#include <stdint.h>

#define THIN_COLUMNS 2048 /* as many as a wide screen shows */

struct thin_cell {
    float min, max;
    /* sum of the values; after thin_spread(): how many seconds of the column are covered */
    double sum;
    uint32_t count; /* 0: empty */
};

struct thin;

/* Returns 0 or -ENOMEM. t1 > t0; columns: the initial number, a power of two. */
int thin_new(struct thin **out, double t0, double t1, uint32_t columns, uint32_t most_cells);
void thin_free(struct thin *t);
/* Returns the row of a key, made if it is new. */
uint32_t thin_row(struct thin *t, const char *key);
/* Adds a value that holds from `at` for `length` seconds (0: at that moment only). */
void thin_add(struct thin *t, uint32_t row, double at, double length, double v);
/* Marks `length` seconds from `at` on as covered; each column gets its own part of it. */
void thin_spread(struct thin *t, uint32_t row, double at, double length);

/* Merges neighbouring columns in pairs, in all rows. There must be more than one column. */
void thin_halve(struct thin *t);

uint32_t thin_rows(const struct thin *t);
uint32_t thin_columns(const struct thin *t);
const char *thin_key(const struct thin *t, uint32_t row);
const struct thin_cell *thin_cell(const struct thin *t, uint32_t row, uint32_t column);
int thin_failed(const struct thin *t);

#endif
