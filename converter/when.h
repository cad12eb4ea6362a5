/* SPDX-License-Identifier: Apache-2.0 */
/*
 * when.h - a time as people write it, and the kinds of records that they ask for.
 *
 *     struct when w;
 *     if (when_parse("2026-11-22T13:05:00", &w) != 0) ... "-5min", "+90s", "1763816700.5" ...
 *     int64_t ns = when_utc(&w, first, last);
 *     uint64_t types;
 *     if (when_kinds("torch,comm", &types, bad) != 0) ...
 *
 * Absolute: date, with or without a time of day (T or a blank between), UTC or with +HH:MM; or seconds since the epoch. Relative:
 * +TIME after the first record, -TIME before the last; TIME is a number with ns, us, ms, s (or nothing), m or min, h, d. Pure.
 */
#ifndef PROBING_CONVERTER_WHEN_H
#define PROBING_CONVERTER_WHEN_H

#include <stdint.h>

struct when {
    enum { WHEN_NOT, WHEN_UTC, WHEN_AFTER_FIRST, WHEN_BEFORE_LAST } from;
    int64_t ns;
};

/* 0 or -EINVAL. */
int when_parse(const char *text, struct when *w);
/* A length of time alone, ns >= 0. 0 or -EINVAL. */
int when_duration(const char *text, int64_t *ns);
/* first, last: of all records, ns UTC. w->from is not WHEN_NOT. */
int64_t when_utc(const struct when *w, int64_t first, int64_t last);
/* Whether the views have columns of that name that are times: seconds since 1970. */
int when_is_column(const char *name);
/* Such a time in nanoseconds. -EDOM: none that they can hold (or a NaN). */
int when_seconds(double seconds, int64_t *ns);
/* A list of kinds, with commas: samples, torch, comm, metrics, program, variables, triggers. types: bit i, record i. 0; -EINVAL
 * with the word that is none of them in bad. */
int when_kinds(const char *list, uint64_t *types, char bad[32]);

#endif
