/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_sums.h - adds up the samples of a database by thread and stack, in one pass and with memory for the distinct pairs only (SQLite's
 * GROUP BY would sort all samples).
 *
 *     struct sums sums;
 *     int rc = sums_read(&sums, db, &fold);
 *     for (size_t i = 0; i < sums.n; i++) ... sums.sum[i].thread, .stack, .weight ...
 *     sums_free(&sums);
 */
#ifndef PROBING_TOOLS_FLAME_SUMS_H
#define PROBING_TOOLS_FLAME_SUMS_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

#include "fold.h"

struct sum {
    int64_t thread, stack; /* ids; stack 0: the stack is not known */
    uint64_t weight;       /* ticks, in units of sums.tick */
};

struct sums {
    struct sum *sum; /* in the order of threads: traces as they come, the main thread first */
    size_t n;
    double tick;       /* seconds for each unit of weight; 0: the sampler was off */
    struct sum *slots; /* private */
    size_t mask;
};

/* Calls `row` for each sample: thread, stack and weight as above, and the number of the part (of SUMS_PARTS equal ones) of its trace's time
 * that it lies in. Returns SQLITE_OK, or SQLite's code, or a code that `row` returned. */
#define SUMS_PARTS 16
typedef int sums_row(void *ctx, int64_t thread, int64_t stack, uint64_t weight, unsigned part);
int sums_each(sqlite3 *db, const struct fold *fold, double *tick, sums_row *row, void *ctx);

/* Reads the samples selected by cpu, pid and rank of `fold`. Returns SQLITE_OK, or SQLite's code. Call sums_free() in any case. */
int sums_read(struct sums *s, sqlite3 *db, const struct fold *fold);
void sums_free(struct sums *s);
/* The same step by step: adds weight to a pair; *s starts as zeros; thread must not be 0. Returns SQLITE_OK or SQLITE_NOMEM. */
int sums_add(struct sums *s, int64_t thread, int64_t stack, uint64_t weight);
/* Call once after that: makes the list s->sum in order. */
void sums_list(struct sums *s);

#endif
