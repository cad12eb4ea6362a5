/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger_step.c - slow steps and hangs.
 *
 * The median is that of the last 50 steps, from the tenth on. The service thread checks the step in progress, so the stacks are those of a step
 * while it is slow; its final duration is added when it ends. A step that ends between two checks triggers at its end.
 *
 * Before the tenth step there is no median: there a hang is that nothing begins or ends for a time (steps_alive), in a program in which
 * something has begun, and in a rank of a distributed job from its recording's start on.
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
#define SLOW_OVER   5000000u    /* ns over the median, at least: tiny steps always vary */
#define HANG_LEAST  1000000000u /* ns */
#define CHECK_LEAST 10000000u   /* ns between two checks */

static struct {
    uint32_t lock;
    uint64_t number, last_end;
    uint64_t ring[LAST], sorted[LAST];
    unsigned n, at;
    uint64_t opened;              /* when the recording began */
    uint64_t stalled;             /* the last sign of life that a hang was reported after */
    int64_t fired[TRIGGER_KINDS]; /* number of the last step they fired in, -1 none */
    struct trigger slow;          /* what was said of the step in progress */
    int slow_open;
} steps;
static struct trigger ended; /* (a by ended_ready) its end, for the service thread to write */
static uint32_t ended_ready;

/* The duration takes the oldest one's place; `sorted` stays sorted. */
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

/* When the step in progress began: evaluation between the steps is none's time. 0: there has been no step. */
static uint64_t began(void) {
    uint64_t since = __atomic_load_n(&steps_begun, __ATOMIC_RELAXED);
    return steps.last_end && since > steps.last_end ? since : steps.last_end;
}

static uint64_t threshold(enum trigger_kind kind) {
    double medians = kind == TRIGGER_hang ? trigger_config.hang : trigger_config.slow_step;
    uint64_t m = median(), t = (uint64_t)((double)m * medians);
    uint64_t least = kind == TRIGGER_hang ? HANG_LEAST : m + SLOW_OVER;
    return t > least ? t : least;
}

/* Not %f: the program's locale may have a comma there. */
#define MS_FORMAT "%" PRIu64 ".%03u ms"
#define MS(ns)    (ns) / 1000000, (unsigned)((ns) / 1000 % 1000)

static void describe(struct trigger *t, const char *what, uint64_t ns) {
    snprintf(t->detail, sizeof t->detail, "%s" MS_FORMAT ", median " MS_FORMAT, what, MS(ns),
             MS(median()));
}

/* In the thread that trains. */
static void on_step(const struct step *s) {
    uint64_t begin = s->begin ? s->begin : steps.last_end, d = s->end > begin ? s->end - begin : 0;
    if (!producer_recording())
        return;
    sys_lock(&steps.lock);
    if (s->anew) /* passes alone are shorter than steps */
        steps.n = steps.at = 0;
    if (steps.slow_open) {
        steps.slow_open = 0;
        if (!__atomic_load_n(&ended_ready, __ATOMIC_ACQUIRE)) {
            describe(&steps.slow, "took ", d);
            ended = steps.slow;
            __atomic_store_n(&ended_ready, 1, __ATOMIC_RELEASE);
        }
    } else if (begin && median() && d > threshold(TRIGGER_slow_step)) {
        struct trigger *t = trigger_new(TRIGGER_slow_step);
        if (t) {
            t->step = (int64_t)s->number;
            describe(t, "took ", d);
            trigger_post(t, 0);
        }
    }
    if (begin)
        add(d);
    steps.number = s->number;
    steps.last_end = s->end;
    sys_unlock(&steps.lock);
}

/* ---- service thread ---- */

/* Fires, once in a step that takes too long. */
static void check(enum trigger_kind kind, uint64_t taking) {
    struct trigger *t;
    if (taking <= threshold(kind) || steps.fired[kind] == (int64_t)steps.number)
        return;
    steps.fired[kind] = (int64_t)steps.number;
    if (!(t = trigger_new(kind)))
        return;
    t->tid = 0;
    describe(t, kind == TRIGGER_hang ? "no step for " : "taking longer than ", taking);
    if (kind == TRIGGER_slow_step) {
        steps.slow = *t;
        steps.slow_open = 1;
    }
    trigger_post(t, 0);
}

void trigger_step_open(void) {
    steps.lock = 0;
    steps.n = steps.at = 0;
    steps.last_end = steps.stalled = 0;
    steps.opened = sys_now();
    steps_alive(0); /* that was in another recording */
    steps.fired[TRIGGER_slow_step] = steps.fired[TRIGGER_hang] = -1;
    steps.slow_open = 0;
    ended_ready = 0;
    steps_on_end(on_step);
}

/* No median yet. */
static void check_stall(uint64_t now) {
    uint64_t sign = __atomic_load_n(&steps_last_sign, __ATOMIC_RELAXED);
    struct trigger *t;
    if (!sign && role_is_worker())
        sign = steps.opened;
    if (!sign || sign == steps.stalled || now < sign + (uint64_t)(trigger_config.stall * 1e9) ||
        !(t = trigger_new(TRIGGER_hang)))
        return;
    steps.stalled = sign;
    t->tid = 0;
    snprintf(t->detail, sizeof t->detail, "no step, pass, batch or collective for " MS_FORMAT,
             MS(now - sign));
    trigger_post(t, 0);
}

void trigger_step_round(struct writer *w, uint64_t now) {
    int ending = capi_loaded() && !capi_usable(); /* no steps are expected then */
    sys_lock(&steps.lock);
    uint64_t since = began();
    if (!ending && !median())
        check_stall(now);
    if (!ending && since && median() && now > since) {
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
    if (median() && steps.last_end && steps.fired[TRIGGER_slow_step] != (int64_t)steps.number &&
        trigger_is_on(TRIGGER_slow_step)) {
        uint64_t due = began() + threshold(TRIGGER_slow_step);
        wait = due > now + CHECK_LEAST ? due - now : CHECK_LEAST;
    }
    sys_unlock(&steps.lock);
    return wait;
}
