/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.h - the exported samples, one by one or added up. The sums agree with those of the SQL views.
 *
 *     struct export_sample s;
 *     sqlite3_stmt *st;
 *     int rc = export_samples(x, EXPORT_AS_RECORDED, &st);
 *     while (rc == 0 && (rc = export_sample(x, st, &s)) > 0) { ...; rc = 0; }
 *     sqlite3_finalize(st);
 *
 *     struct export_sums sums;
 *     rc = export_sums(x, &sums);                 // takes memory for the distinct pairs of thread and stack
 *     for (size_t i = 0; i < sums.n; i++) ... export_sum(&sums, i) ...
 *     export_sums_free(&sums);
 *
 * Samples that a trigger took (count 0) stand for no time, and are left out.
 */
#ifndef PROBING_TOOLS_EXPORT_SAMPLES_H
#define PROBING_TOOLS_EXPORT_SAMPLES_H

#include "../flame_sums.h"
#include "export.h"

struct export_sample {
    int64_t id, ts, thread;
    int64_t stack;  /* 0: it could not be read */
    int64_t count;  /* successive ticks from ts on */
    int64_t ns;     /* the same in time */
    int64_t cpu_us; /* CPU time since the thread's previous sample */
    int flags;      /* 1 was on a CPU, 2 held the GIL, 4 read from outside */
};

enum export_order {
    EXPORT_AS_RECORDED, /* process by process, threads mixed, nearly by time: the cheapest order */
    EXPORT_BY_TIME,     /* over all processes */
    EXPORT_BY_THREAD,   /* thread by thread, each by time */
};
int export_samples(struct export *x, enum export_order order, sqlite3_stmt **out);
int export_sample(struct export *x, sqlite3_stmt *st, struct export_sample *out);

struct export_sums {
    struct sums count, ns, cpu; /* private */
    size_t n;
};
struct export_sum {
    int64_t thread, stack; /* sorted by both; stack 0: it could not be read */
    uint64_t count, ns, cpu_us;
};
/* Returns 0 or -errno. Call export_sums_free() in any case. */
int export_sums(struct export *x, struct export_sums *out);
struct export_sum export_sum(const struct export_sums *s, size_t i);
void export_sums_free(struct export_sums *s);

#endif
