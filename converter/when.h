/* SPDX-License-Identifier: Apache-2.0 */
/*
 * when.h - parses times and kinds of records as people write them.
 *
 *     struct when w;
 *     if (when_parse("2026-11-22T13:05:00", &w) != 0) ... "-5min", "+90s", "1763816700.5" ...
 *     int64_t ns = when_utc(&w, first, last);
 *     uint64_t types;
 *     if (when_kinds("torch,comm", &types, bad) != 0) ...
 *
 * Absolute times: a date, with or without a time of day (separated by T or a blank), in UTC or with +HH:MM; or seconds since the epoch.
 * Relative times: +TIME after the first record, -TIME before the last one. TIME is a number with ns, us, ms, s (or nothing), m or min, h,
 * d. Pure.
 */
#ifndef PROBING_CONVERTER_WHEN_H
#define PROBING_CONVERTER_WHEN_H

#include <stdint.h>

struct when {
    enum { WHEN_NOT, WHEN_UTC, WHEN_AFTER_FIRST, WHEN_BEFORE_LAST } from;
    int64_t ns;
};

/* Returns 0 or -EINVAL. A time that nanoseconds since 1970 cannot hold (before 1677, after 2262) becomes the first or last one that they can. */
int when_parse(const char *text, struct when *w);
/* Parses an absolute time of any year from 0 to 9999: seconds since the epoch. Returns 0 or -EINVAL. */
int when_text(const char *text, double *seconds);
/* Parses a duration alone, ns >= 0. Returns 0 or -EINVAL. */
int when_duration(const char *text, int64_t *ns);
/* Returns the time in ns UTC. first, last: of all records, ns UTC. w->from must not be WHEN_NOT. */
int64_t when_utc(const struct when *w, int64_t first, int64_t last);
/* Returns a + b, or the nearest number that an int64_t can hold. */
int64_t when_add(int64_t a, int64_t b);
/* Returns 1 when the columns with that name in the views are times (seconds since 1970). */
int when_is_column(const char *name);
/* Converts such a time to nanoseconds. Returns -EDOM for a NaN and for one that does not fit. */
int when_seconds(double seconds, int64_t *ns);
/* Parses a comma-separated list of kinds: samples, torch, comm, metrics, program, variables, triggers. Bit i of *types stands for record
 * type i. Returns 0, or -EINVAL with the unknown word in bad. */
int when_kinds(const char *list, uint64_t *types, char bad[32]);

#endif
