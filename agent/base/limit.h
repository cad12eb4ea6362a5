/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - limits a measurement that costs microseconds to 0.25 % of the time, and shares that time fairly among names.
 *
 *     struct limit m;
 *     static struct limit_name names[...];           // one for each name, zeros at first
 *     limit_start(&m, 5000, seed);                   // a first guess of one measurement's cost, ns
 *     if (limit_due(&m, &names[i], now)) {
 *         ...;
 *         limit_spent(&m, ns);                       // may be called several times
 *     }
 *
 * This is a token bucket, filled at 0.25 % of the passing time and emptied by limit_spent(). A name that is due while the bucket is
 * empty stays due. After a measurement, a name skips a random number of calls (counted over all names); the mean is such that the
 * bucket lasts for all names. So each name is measured about equally often, however often it is called and wherever in a step.
 *
 * Not thread-safe: one struct for each thread. Pure arithmetic, about 2 ns for a call that is skipped.
 */
#ifndef PROBING_AGENT_LIMIT_H
#define PROBING_AGENT_LIMIT_H

#include <stdint.h>

#define LIMIT_SHARE  400        /* 1 / 400 of the time */
#define LIMIT_CREDIT 1000000    /* ns that can be saved up: what one step may get longer at most */
#define LIMIT_WINDOW 300000000u /* minimum time between changes of the period, ns */
#define LIMIT_ONE    200000u    /* ns; a longer measurement was preempted, counts as this */
#define LIMIT_PERIOD 1000000000u

struct limit_name {
    uint32_t next; /* number of the call at which the name is due */
    uint32_t seen; /* number of the window in which the name was last called */
};

struct limit {
    uint64_t last, began;  /* time up to which credit was given; time when this window began */
    int64_t credit, rare;  /* ns; half of `rare` is for limit_rare() */
    uint64_t cost;         /* mean cost of a measurement in the last window, ns */
    uint64_t spent;        /* ns spent in this window */
    uint32_t calls, start; /* number of calls, modulo 2^32; its value when this window began */
    uint32_t names, known; /* number of different names in this window; in earlier windows */
    uint32_t served;       /* number of measurements in this window */
    uint32_t window, period, seed;
};

static inline void limit_start(struct limit *m, uint64_t cost, uint32_t seed) {
    *m = (struct limit){.credit = LIMIT_CREDIT / 4,
                        .rare = LIMIT_CREDIT / 4,
                        .cost = cost,
                        .window = 1,
                        .period = 1,
                        .seed = seed ? seed : 1};
}

/* Begins a new window: sets the period from a measurement's cost, the measurements that can be paid for, and the names that ask. */
static inline void limit_adapt(struct limit *m, uint64_t now) {
    uint64_t calls = (uint32_t)(m->calls - m->start), period;
    if (m->served)
        m->cost = m->spent / m->served + 1;
    /* Decay slowly, because some names are called less often than once in a window. */
    m->known -= m->known / 8;
    if (m->names > m->known)
        m->known = m->names;
    uint64_t paid = (now - m->began) / LIMIT_SHARE / m->cost * 9 / 10 + 1;
    period = paid < calls ? m->known * calls / paid : 1;
    m->period = period < 1 ? 1 : period < LIMIT_PERIOD ? (uint32_t)period : LIMIT_PERIOD;
    m->start = m->calls;
    m->names = m->served = 0;
    m->spent = 0;
    m->began = now;
    m->window++;
}

static inline void limit_refill(struct limit *m, uint64_t now) {
    if (!m->last)
        m->last = m->began = now;
    if (now > m->last) {
        uint64_t more = (now - m->last) / LIMIT_SHARE;
        m->credit += (int64_t)more;
        m->rare += (int64_t)more;
        m->last += more * LIMIT_SHARE;
    }
    if (m->credit > LIMIT_CREDIT)
        m->credit = LIMIT_CREDIT;
    if (m->rare > LIMIT_CREDIT)
        m->rare = LIMIT_CREDIT;
    if (now > m->began && now - m->began > LIMIT_WINDOW)
        limit_adapt(m, now);
}

/* Returns 1 when the caller is to measure now, and then to call limit_spent(). `now` is in ns. */
static inline int limit_due(struct limit *m, struct limit_name *name, uint64_t now) {
    uint32_t call = ++m->calls;
    if (name->seen != m->window) {
        m->names++;
        if (!name->seen)
            name->next = call;
        name->seen = m->window;
    }
    if ((int32_t)(call - name->next) < 0)
        return 0;
    limit_refill(m, now);
    if (m->credit < (int64_t)m->cost)
        return 0;
    m->served++;
    name->next = call + 1;
    if (m->period > 1) {
        m->seed ^= m->seed << 13;
        m->seed ^= m->seed >> 17;
        m->seed ^= m->seed << 5;
        name->next = call + 1 + m->seed % (2 * m->period - 1);
    }
    return 1;
}

/* Like limit_due(), for measurements that take precedence over all names: they may take up to half of the time. Then call limit_spent_rare(). */
static inline int limit_rare(struct limit *m, uint64_t now) {
    limit_refill(m, now);
    if (m->rare < 2 * (int64_t)m->cost)
        return 0;
    m->served++;
    return 1;
}

static inline void limit_spent(struct limit *m, uint64_t ns) {
    if (ns > LIMIT_ONE)
        ns = LIMIT_ONE;
    m->credit -= (int64_t)ns;
    m->spent += ns;
}

static inline void limit_spent_rare(struct limit *m, uint64_t ns) {
    m->rare -= 2 * (int64_t)(ns < LIMIT_ONE ? ns : LIMIT_ONE);
    limit_spent(m, ns);
}

#endif
