/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - from a trace's CLOCK_MONOTONIC to nanoseconds since the epoch, UTC.
 *
 * A trace holds anchors, each the same instant on both clocks. Between two anchors time runs
 * linearly from the one to the other, so that a clock that NTP disciplines, or steps, meanwhile is
 * followed; before the first and after the last it runs at the monotonic clock's speed.
 *
 *     struct clock_map m = {0};
 *     clock_add(&m, ts, realtime, bracket) ...;  clock_ready(&m);
 *     int64_t utc = clock_utc(&m, ts);           // m.n == 0: the time as it is
 *     clock_free(&m);
 *
 * clock_utc() remembers the segment used last (times nearly ascend): one thread at a time.
 */
#ifndef PROBING_CONVERTER_CLOCK_H
#define PROBING_CONVERTER_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock_anchor {
    int64_t mono, real; /* ns */
    double gain;        /* real ns gained per monotonic ns until the next anchor */
};

struct clock_map {
    struct clock_anchor *a;
    size_t n, cap, last;
    uint64_t uncertainty; /* the widest bracket, ns */
};

/* 0 or -ENOMEM. bracket: how long taking the anchor took, ns. */
int clock_add(struct clock_map *m, uint64_t ts, uint64_t realtime, uint64_t bracket);
void clock_ready(struct clock_map *m);
/* Both in ns. */
int64_t clock_utc(struct clock_map *m, uint64_t ts);
/* The same of n times. */
void clock_utc_many(struct clock_map *m, const uint64_t *ts, int64_t *utc, size_t n);
/* The first time that is utc or later. */
uint64_t clock_mono(struct clock_map *m, int64_t utc);
void clock_free(struct clock_map *m);

#endif
