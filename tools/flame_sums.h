/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_sums.h - the samples of a database added up by thread and stack, in one pass over them and
 * memory for the distinct pairs only (SQLite's GROUP BY would sort all samples).
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
    int64_t thread, stack; /* ids; stack 0: not known */
    uint64_t weight;       /* ticks, in units of sums.tick */
};

struct sums {
    struct sum *sum; /* in the order of threads: traces as they came, the main thread first */
    size_t n;
    double tick;       /* seconds a unit of weight stands for; 0: the sampler was off */
    struct sum *slots; /* private */
    size_t mask;
};

/* Each sample: thread, stack and weight as above, and which of the SUMS_PARTS parts of its trace's time it is in. SQLITE_OK, or SQLite's code,
 * also one that `row` returned. */
#define SUMS_PARTS 16
typedef int sums_row(void *ctx, int64_t thread, int64_t stack, uint64_t weight, unsigned part);
int sums_each(sqlite3 *db, const struct fold *fold, double *tick, sums_row *row, void *ctx);

/* Which samples: cpu, pid and rank of `fold`. SQLITE_OK, or SQLite's code. sums_free() in any case. */
int sums_read(struct sums *s, sqlite3 *db, const struct fold *fold);
void sums_free(struct sums *s);
/* The same by hand: weights of pairs, from a struct of zeros on; thread is not 0. SQLITE_OK or SQLITE_NOMEM. */
int sums_add(struct sums *s, int64_t thread, int64_t stack, uint64_t weight);
/* Then, once: s->sum, in their order. */
void sums_list(struct sums *s);

#endif
