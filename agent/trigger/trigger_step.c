/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger_step.c - slow steps and hangs.
 *
 * A step is compared with the median of the last 50 steps, from the tenth on. The service thread checks the step in progress, so the stacks are
 * those of a step while it is slow; its final duration is added when it ends. A step that ends between two checks triggers at its end.
 *
 * Before the tenth step there is no median. Until then, a hang means that nothing (steps_alive) has begun or ended for some time: since the last
 * sign of life in a program that has given one, and since the start of the recording in a rank of a distributed job.
 */
#include <inttypes.h>
#include <stdio.h>

#include "agent/core/producer.h"
#include "agent/core/role.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/trigger/trigger.h"

#define LAST        50
#define FEWEST      10
#define SLOW_OVER   5000000u    /* minimum time over the median, ns: tiny steps always vary */
#define HANG_LEAST  1000000000u /* minimum time of a hang, ns */
#define CHECK_LEAST 10000000u   /* minimum time between two checks, ns */
#define SLEEP_MOST  250000000u  /* the service thread sleeps no longer than this, ns (service.c) */
#define STOPPED     200000000u  /* woke so much later than it was to, ns: the process was stopped */

static struct {
    uint32_t lock;
    uint64_t opened, number, last_end; /* opened: when the recording began */
    uint64_t ring[LAST], sorted[LAST];
    unsigned n, at;
    uint64_t slept, due; /* the service thread's sleep: since, until; due is 0 while it works */
    uint64_t resumed;    /* no time before this counts, see began() */
    uint64_t fired[TRIGGER_KINDS]; /* in_progress() when the kind last fired; -1: never */
    struct trigger slow;           /* trigger of the step in progress, if slow_open */
    int slow_open;
} steps;
static struct trigger ended; /* the slow step's end, for the service thread; see ended_ready */
static uint32_t ended_ready; /* (a) `ended` is filled in and not written yet */

/* Adds a duration, in place of the oldest one when there are LAST; keeps `sorted` sorted. */
static void add(uint64_t d) {
    unsigned n = steps.n, i = 0;
    if (n == LAST) {
        while (steps.sorted[i] != steps.ring[steps.at])
            i++;
        memmove(&steps.sorted[i], &steps.sorted[i + 1], (n - 1 - i) * sizeof *steps.sorted);
        n--;
    }
    for (i = n; i > 0 && steps.sorted[i - 1] > d; i--)
        steps.sorted[i] = steps.sorted[i - 1];
    steps.sorted[i] = d;
    steps.ring[steps.at] = d;
    steps.at = (steps.at + 1) % LAST;
    steps.n = n + 1;
}

static uint64_t median(void) {
    return steps.n < FEWEST ? 0 : steps.sorted[steps.n / 2];
}

/* Returns what is in progress: the step's number or, while there is no median, the last sign of life (0: there was none, and none is expected). */
static uint64_t in_progress(void) {
    uint64_t sign = __atomic_load_n(&steps_last_sign, __ATOMIC_RELAXED);
    return median() ? steps.number : sign || !role_is_worker() ? sign : steps.opened;
}

/* Returns when the step in progress began or, while there is no median, the last sign of life; 0: neither. Evaluation between two steps belongs
 * to neither. The time in which the process was stopped does not count: the result is later by as much. */
static uint64_t began(void) {
    uint64_t since = __atomic_load_n(&steps_begun, __ATOMIC_RELAXED);
    since = !median()                                  ? in_progress()
            : steps.last_end && since > steps.last_end ? since
                                                       : steps.last_end;
    return since && since < steps.resumed ? steps.resumed : since;
}

/* Takes the time of a stop (SIGSTOP, a debugger) from the step in progress: the whole sleep that overran, as nothing says when in it the stop
 * began. Either thread may be the first to go on: the service thread, or the one that ends the step. */
static void discount(uint64_t now) {
    uint64_t since = began();
    if (!steps.due || now <= steps.due + STOPPED)
        return;
    steps.resumed = since > steps.slept ? now : since ? since + (now - steps.slept) : 0;
    steps.slept = steps.due = now;
}

static uint64_t threshold(enum trigger_kind kind) {
    double medians = kind == TRIGGER_hang ? trigger_config.hang : trigger_config.slow_step;
    uint64_t m = median(), t = (uint64_t)((double)m * medians);
    uint64_t least = kind == TRIGGER_hang ? HANG_LEAST : m + SLOW_OVER;
    if (!m)
        return kind == TRIGGER_hang ? (uint64_t)(trigger_config.stall * 1e9) : UINT64_MAX;
    return t > least ? t : least;
}

/* Not %f, which would print a comma in some locales of the program. */
#define MS_FORMAT "%" PRIu64 ".%03u ms"
#define MS(ns)    (ns) / 1000000, (unsigned)((ns) / 1000 % 1000)

static void describe(struct trigger *t, const char *what, uint64_t ns) {
    snprintf(t->detail, sizeof t->detail, "%s" MS_FORMAT ", median " MS_FORMAT, what, MS(ns),
             MS(median()));
}

/* Called on the training thread. */
static void on_step(const struct step *s) {
    uint64_t begin = s->begin ? s->begin : steps.last_end, d;
    if (!producer_recording())
        return;
    sys_lock(&steps.lock);
    discount(s->end);
    int stopped = begin < steps.resumed;
    begin = begin && stopped ? steps.resumed : begin;
    d = s->end > begin ? s->end - begin : 0;
    if (s->anew) /* forget what was counted: passes are shorter than steps */
        steps.n = steps.at = 0;
    if (steps.slow_open) {
        steps.slow_open = 0;
        if (!__atomic_load_n(&ended_ready, __ATOMIC_ACQUIRE)) {
            describe(&steps.slow, "took ", d);
            ended = steps.slow;
            __atomic_store_n(&ended_ready, 1, __ATOMIC_RELEASE);
        }
    } else if (begin && d > threshold(TRIGGER_slow_step)) {
        struct trigger *t = trigger_new(TRIGGER_slow_step);
        if (t) {
            t->step = (int64_t)s->number;
            describe(t, "took ", d);
            trigger_post(t, 0);
        }
    }
    if (begin && !stopped)
        add(d);
    steps.number = s->number;
    steps.last_end = s->end;
    sys_unlock(&steps.lock);
}

/* ---- service thread ---- */

/* Fires when the step in progress has taken too long, once in each step. */
static void check(enum trigger_kind kind, uint64_t taking) {
    struct trigger *t;
    if (taking <= threshold(kind) || steps.fired[kind] == in_progress())
        return;
    steps.fired[kind] = in_progress();
    if (!(t = trigger_new(kind)))
        return;
    t->tid = 0;
    if (median())
        describe(t, kind == TRIGGER_hang ? "no step for " : "taking longer than ", taking);
    else
        snprintf(t->detail, sizeof t->detail, "no step, pass, batch or collective for " MS_FORMAT,
                 MS(taking));
    if (kind == TRIGGER_slow_step) {
        steps.slow = *t;
        steps.slow_open = 1;
    }
    trigger_post(t, 0);
}

void trigger_step_open(void) {
    memset(&steps, 0, sizeof steps);
    steps.opened = sys_now();
    steps_alive(0); /* forget the sign of life of an earlier recording */
    steps.fired[TRIGGER_slow_step] = steps.fired[TRIGGER_hang] = -1;
    ended_ready = 0;
    steps_on_end(on_step);
}

void trigger_step_round(struct writer *w, uint64_t now) {
    int ending = capi_loaded() && !capi_usable(); /* no steps are expected then */
    sys_lock(&steps.lock);
    discount(now);
    steps.due = 0;
    uint64_t since = began();
    if (!ending && since && now > since) {
        check(TRIGGER_slow_step, now - since);
        check(TRIGGER_hang, now - since);
    }
    sys_unlock(&steps.lock);
    if (__atomic_load_n(&ended_ready, __ATOMIC_ACQUIRE)) {
        trigger_emit(w, &ended);
        __atomic_store_n(&ended_ready, 0, __ATOMIC_RELEASE);
    }
}

uint64_t trigger_step_wait(uint64_t now) {
    uint64_t wait = UINT64_MAX;
    sys_lock(&steps.lock);
    if (median() && steps.last_end && steps.fired[TRIGGER_slow_step] != in_progress() &&
        trigger_is_on(TRIGGER_slow_step)) {
        uint64_t due = began() + threshold(TRIGGER_slow_step);
        wait = due > now + CHECK_LEAST ? due - now : CHECK_LEAST;
    }
    steps.slept = now; /* what it did until now may have taken long: a slow disk */
    steps.due = now + (wait < SLEEP_MOST ? wait : SLEEP_MOST);
    sys_unlock(&steps.lock);
    return wait;
}
