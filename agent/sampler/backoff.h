/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backoff.h - decides at which ticks of the sampler a thread is sampled: at each tick or, while it sleeps, at one of several.
 *
 *     struct tick mine;
 *     if (backoff_due(&b, period, &tick, &mine)) {     // else: not sampled at this tick
 *         ... a sample for the ticks of `mine`
 *         if (asleep) backoff_give(&b, period, mine.missed + mine.span, random);
 *         else        b.asleep = 0;
 *     }
 *
 * Most threads of most programs sleep most of the time, and reading a thread's CPU clock is a system call: at 1 kHz, a hundred idle threads took a twentieth
 * of a CPU. So a sleeping thread is read once in a run of ticks, 8 ms at most, and that sample counts for all of them. The tick within the run is chosen at
 * random, so that a thread that works at fixed intervals is seen at work as often as it should be. Each tick is counted exactly once.
 *
 * Pure functions: they read no clock and have no static data. Times are in ns.
 */
#ifndef PROBING_AGENT_BACKOFF_H
#define PROBING_AGENT_BACKOFF_H

#include <stdint.h>

#define BACKOFF_AFTER 4        /* ticks asleep in a row after which ticks are skipped */
#define BACKOFF_MAX   8000000u /* longest run of ticks for one sample, ns */

/* A tick of all threads, or (`mine`) of one thread. */
struct tick {
    uint64_t at;     /* time of the tick, a multiple of 1 us */
    uint64_t last;   /* the last of the ticks that it stands for; may be in the future */
    uint64_t span;   /* number of ticks that it stands for */
    uint64_t missed; /* number of ticks before these at which the sampler could not run */
};

/* State of one thread. All zeros: the thread is sampled at each tick. */
struct backoff {
    uint64_t asleep;  /* number of ticks in a row that found it asleep */
    uint64_t ticks;   /* ticks of its next sample, besides those after `covered`; 0: no run */
    uint64_t due;     /* tick at which the next sample is taken; 0: now */
    uint64_t covered; /* the last tick that is accounted for, those of the next sample included */
};

/* Returns the number of ticks (`longest` ns at most) that one sample may stand for, for a thread that has been asleep for `asleep` ticks. */
static inline uint64_t backoff_ticks(uint64_t asleep, uint64_t period, uint64_t longest) {
    uint64_t n = asleep < BACKOFF_AFTER ? 1 : asleep / 2, most = longest / period;
    return n <= most ? n : most ? most : 1;
}

/* Returns 1 when the thread is to be sampled now, with the ticks that the sample stands for in *mine; 0 when it is not sampled at this tick. */
static inline int backoff_due(struct backoff *r, uint64_t period, const struct tick *tick,
                              struct tick *mine) {
    /* Number of ticks in the tick's `span` and `missed` that are not covered by a sample yet. */
    uint64_t more = tick->last > r->covered ? (tick->last - r->covered) / period : 0;
    if (r->ticks ? tick->last < r->due : more == 0)
        return 0;
    *mine = *tick;
    if (mine->span > more)
        mine->span = more;
    if (mine->missed > more - mine->span)
        mine->missed = more - mine->span;
    if (r->ticks) /* the ticks of this one, and those at which the thread was skipped */
        mine->span = r->ticks + more - mine->missed;
    r->ticks = 0;
    if (tick->last > r->covered)
        r->covered = tick->last;
    mine->last = r->covered;
    return 1;
}

/* Plans the next sample, after one for `ticks` ticks that found the thread asleep. random: any number. */
static inline void backoff_give(struct backoff *r, uint64_t period, uint64_t ticks,
                                uint64_t random) {
    r->asleep += ticks;
    uint64_t n = backoff_ticks(r->asleep, period, BACKOFF_MAX);
    if (n < 2)
        return;
    r->ticks = n;
    r->due = r->covered + (1 + random % n) * period;
    r->covered += n * period;
}

#endif
