/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - converts a trace's CLOCK_MONOTONIC to nanoseconds since the epoch, UTC.
 *
 * A trace holds anchors: readings of both clocks at the same instant. Between two anchors time is interpolated linearly, which follows a
 * clock that NTP disciplines or steps meanwhile. Before the first anchor and after the last one, time runs at the speed of the monotonic
 * clock.
 *
 *     struct clock_map m = {0};
 *     clock_add(&m, ts, realtime, bracket) ...;  clock_ready(&m);
 *     int64_t utc = clock_utc(&m, ts);           // without anchors (m.n == 0): ts itself
 *     clock_free(&m);
 *
 * clock_utc() caches the segment that was used last (times mostly ascend): one thread at a time.
 */
#ifndef PROBING_CONVERTER_CLOCK_H
#define PROBING_CONVERTER_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock_anchor {
    int64_t mono, real; /* ns */
    /* ns by which `real` advances more for each monotonic ns, until the next anchor */
    double gain;
};

struct clock_map {
    struct clock_anchor *a;
    size_t n, cap, last;
    uint64_t uncertainty; /* the widest bracket, ns */
};

/* bracket: how many ns reading the anchor took. Returns 0 or -ENOMEM. */
int clock_add(struct clock_map *m, uint64_t ts, uint64_t realtime, uint64_t bracket);
void clock_ready(struct clock_map *m);
/* Converts one time; both times are in ns. */
int64_t clock_utc(struct clock_map *m, uint64_t ts);
/* Converts n times. */
void clock_utc_many(struct clock_map *m, const uint64_t *ts, int64_t *utc, size_t n);
/* Returns the first monotonic time whose UTC is `utc` or later. */
uint64_t clock_mono(struct clock_map *m, int64_t utc);
void clock_free(struct clock_map *m);

#endif
