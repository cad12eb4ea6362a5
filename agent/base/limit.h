/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - keeps something that costs microseconds to a share of the time (0.25 %), and shares what is left fairly among names.
 *
 *     struct limit m;
 *     static struct limit_name names[...];           // one for each name, zeros at first
 *     limit_start(&m, 5000, seed);                   // a first guess of what one costs, ns
 *     if (limit_due(&m, &names[i], now)) {
 *         ...;
 *         limit_spent(&m, ns);                       // in one or more parts
 *     }
 *
 * A token bucket, filled at 0.25 % of the passing time and emptied by limit_spent(). A name that is due while the bucket is empty
 * stays due. After a name was measured it skips a random number of calls (of all names), on average so many that the bucket lasts for
 * all of them. So each name is measured about equally often, however often it is called and wherever in a step it stands.
 *
 * Not thread-safe: one struct for each thread. Pure arithmetic, about 2 ns for a call that is skipped.
 */
#ifndef PROBING_AGENT_LIMIT_H
#define PROBING_AGENT_LIMIT_H

#include <stdint.h>

#define LIMIT_SHARE  400     /* 1 / 400 of the time */
#define LIMIT_CREDIT 1000000 /* ns that can be saved up: so much may one step be longer at worst */
#define LIMIT_WINDOW 300000000u /* ns, at least, between changes of the period */
#define LIMIT_ONE    200000u    /* ns: more than that is the scheduler's doing, not ours */
#define LIMIT_PERIOD 1000000000u

struct limit_name {
    uint32_t next; /* the call that it is due at */
    uint32_t seen; /* the window in which it was last called */
};

struct limit {
    uint64_t last, began;  /* until when credit was given; when the window began */
    int64_t credit, rare;  /* ns; rare: half of it is for limit_rare */
    uint64_t cost;         /* of one, ns, as the last window had it */
    uint64_t spent;        /* in this window */
    uint32_t calls, start; /* all calls, modulo 2^32; those before this window */
    uint32_t names, known; /* different names in this window; in the ones before */
    uint32_t served;       /* in this window */
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

/* A new window. What did one cost, how many can be paid for, how many want it? */
static inline void limit_adapt(struct limit *m, uint64_t now) {
    uint64_t calls = (uint32_t)(m->calls - m->start), period;
    if (m->served)
        m->cost = m->spent / m->served + 1;
    /* Some names are called less often than once in a window. */
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

/* 1: do it now, and then say limit_spent(). now: ns. */
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

/* For what comes before all names, whatever they have left: up to half of all. limit_spent_rare() then. */
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
