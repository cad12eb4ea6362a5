/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backoff.h - at which ticks of the sampler a thread is sampled: at each, or while it sleeps at one of several.
 *
 *     struct tick mine;
 *     if (backoff_due(&b, period, &tick, &mine)) {     // else: it is not its turn
 *         ... a sample for the ticks of `mine`
 *         if (asleep) backoff_give(&b, period, mine.missed + mine.span, random);
 *         else        b.asleep = 0;
 *     }
 *
 * Most threads of most programs sleep most of the time, and asking for a thread's CPU clock is a system call: at 1 kHz a
 * hundred idle threads took a twentieth of a CPU. So a sleeping thread is read once in a run of ticks, 8 ms at most, and that
 * sample counts for all of them. Which tick of the run it is, is random: a thread that works and sleeps by the clock is seen at
 * work as often as it should be. Each tick is counted once, whatever comes between.
 *
 * Pure: no clock, no memory of its own. Times in ns.
 */
#ifndef PROBING_AGENT_BACKOFF_H
#define PROBING_AGENT_BACKOFF_H

#include <stdint.h>

#define BACKOFF_AFTER 4        /* ticks asleep in a row */
#define BACKOFF_MAX   8000000u /* ns */

/* A tick: of all threads, or (mine) of one. */
struct tick {
    uint64_t at;     /* now, whole us */
    uint64_t last;   /* of the ticks that it stands for; may be yet to come */
    uint64_t span;   /* how many they are */
    uint64_t missed; /* ticks before them that we slept through against our will */
};

/* All zeros: a thread that is sampled at each tick. */
struct backoff {
    uint64_t asleep;  /* ticks in a row that found it asleep */
    uint64_t ticks;   /* of its next sample, beside those after `covered`; 0: it is taken at each */
    uint64_t due;     /* the tick at which that is taken; 0: now */
    uint64_t covered; /* the last tick that is accounted for, those of the next sample included */
};

/* How many ticks one sample may stand for, of a thread that has been asleep for so many. */
static inline uint64_t backoff_ticks(uint64_t asleep, uint64_t period) {
    uint64_t n = asleep < BACKOFF_AFTER ? 1 : asleep / 2, most = BACKOFF_MAX / period;
    return n <= most ? n : most ? most : 1;
}

/* 1: *mine says which ticks a sample of it now stands for. 0: it is not sampled at this one. */
static inline int backoff_due(struct backoff *r, uint64_t period, const struct tick *tick,
                              struct tick *mine) {
    /* How many of the tick's `span` and `missed` no sample stands for yet. */
    uint64_t more = tick->last > r->covered ? (tick->last - r->covered) / period : 0;
    if (r->ticks ? tick->last < r->due : more == 0)
        return 0;
    *mine = *tick;
    if (mine->span > more)
        mine->span = more;
    if (mine->missed > more - mine->span)
        mine->missed = more - mine->span;
    if (r->ticks) /* this tick's, and those at which it was left out */
        mine->span = r->ticks + more - mine->missed;
    r->ticks = 0;
    if (tick->last > r->covered)
        r->covered = tick->last;
    mine->last = r->covered;
    return 1;
}

/* After a sample that found it asleep, for `ticks` more. random: any number. */
static inline void backoff_give(struct backoff *r, uint64_t period, uint64_t ticks,
                                uint64_t random) {
    r->asleep += ticks;
    uint64_t n = backoff_ticks(r->asleep, period);
    if (n < 2)
        return;
    r->ticks = n;
    r->due = r->covered + (1 + random % n) * period;
    r->covered += n * period;
}

#endif
