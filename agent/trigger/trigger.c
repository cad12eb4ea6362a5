/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/trigger/trigger.h"

#include "agent/core/meta.h"
#include "agent/core/producer.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/sampler/sampler.h"

#define REQUESTS 8
#define BURST_MS 1500 /* wait for the stacks: on a busy machine the sampler gets the CPU late */
#define REARM_NS 1000000000u
#define PENDING  1000000u /* ns: an operation that began this long before the trigger is written */

enum { FREE, FILLING, POSTED, TAKEN, DONE };
#define LEFT 0x100u /* flag of a state: no thread waits for the trigger (any more) */

struct triggers trigger_config;
static struct trigger requests[REQUESTS];
static uint32_t ids, used[TRIGGER_KINDS]; /* (a) number of triggers in this recording; by kind */
static uint64_t rearmed;
static uint32_t open_generation; /* (a) recording whose triggers are on; 0: none */

/* ---- callable from any thread and any signal handler ---- */

int trigger_is_on(enum trigger_kind kind) {
    return __atomic_load_n(&trigger_config.on, __ATOMIC_RELAXED) >> kind & 1;
}

void trigger_say(struct trigger *t, const char *text) {
    strncat(t->detail, text, sizeof t->detail - strlen(t->detail) - 1);
}

void trigger_say_number(struct trigger *t, uint64_t number, unsigned base) {
    char digits[32], *p = digits + sizeof digits;
    *--p = 0;
    do
        *--p = "0123456789abcdef"[number % base];
    while (number /= base);
    if (base == 16) {
        *--p = 'x';
        *--p = '0';
    }
    trigger_say(t, p);
}

struct trigger *trigger_new(enum trigger_kind kind) {
    if (!trigger_is_on(kind) || !producer_recording() ||
        __atomic_load_n(&open_generation, __ATOMIC_ACQUIRE) != producer_generation() ||
        __atomic_fetch_add(&used[kind], 1, __ATOMIC_RELAXED) >= TRIGGER_MOST)
        return NULL;
    for (struct trigger *t = requests; t < requests + REQUESTS; t++) {
        if (sys_swap(&t->state, FREE, FILLING) != FREE)
            continue;
        t->kind = kind;
        t->except = 0;
        t->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
        t->tid = (uint32_t)syscall(SYS_gettid);
        t->ts = sys_now();
        t->tick = t->ts - t->ts % 1000;
        t->step = (int64_t)steps_current();
        t->detail[0] = t->text[0] = 0;
        return t;
    }
    return NULL;
}

void trigger_post(struct trigger *t, int wait_ms) {
    uint64_t end = sys_now() + (uint64_t)wait_ms * SYS_MS;
    uint32_t state;
    __atomic_store_n(&t->state, wait_ms ? POSTED : POSTED | LEFT, __ATOMIC_RELEASE);
    agent_wake();
    if (!wait_ms)
        return;
    while ((state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE)) != DONE &&
           !sys_wait(&t->state, state, end))
        ;
    if (state != DONE && __atomic_fetch_or(&t->state, LEFT, __ATOMIC_ACQ_REL) != DONE)
        return;
    __atomic_store_n(&t->state, FREE, __ATOMIC_RELEASE);
}

/* ---- the service thread ---- */

void trigger_emit(struct writer *w, const struct trigger *t) {
    WRITER_EMIT(w, trigger, .ts = t->ts, .id = t->id, .kind = value_text(trigger_name(t->kind)),
                .tid = t->tid, .step = t->step, .tick = t->tick, .detail = value_text(t->detail),
                .text = value_text(t->text));
}

static void serve(struct writer *w, struct trigger *t) {
    /* The waiting thread may give up at any time: it then sets LEFT in the state. */
    if (sys_swap(&t->state, POSTED, TAKEN) != POSTED &&
        sys_swap(&t->state, POSTED | LEFT, TAKEN | LEFT) != (POSTED | LEFT))
        return;
    trigger_emit(w, t);
    uint64_t pending = t->kind == TRIGGER_fatal ? 0 : PENDING; /* a call may abort at once */
    PARTS_CALL(triggered, w, t->ts > pending ? t->ts - pending : 0);
    if (sampler_burst(t->tick, t->except, BURST_MS) == -ETIMEDOUT)
        meta_note(w, 1, "triggers", "the stacks of trigger %u are late or missing: no CPU", t->id);
    if (__atomic_load_n(&used[t->kind], __ATOMIC_RELAXED) == TRIGGER_MOST)
        meta_note(w, 0, "triggers", "the last of %d of the kind %s", TRIGGER_MOST,
                  trigger_name(t->kind));
    writer_drain(w, WRITER_FLUSH);
    if (sys_swap(&t->state, TAKEN, DONE) == TAKEN)
        sys_wake(&t->state);
    else
        __atomic_store_n(&t->state, FREE, __ATOMIC_RELEASE);
}

static void read_config(void) {
    char text[SETTING_TEXT_MAX], why[SETTING_WHY];
    struct triggers t = {0, 0, 0, 0};
    settings_text(SETTING_triggers, text, sizeof text);
    if (triggers_parse(text, &t, why, sizeof why))
        return;
    trigger_config.slow_step = t.slow_step;
    trigger_config.hang = t.hang;
    trigger_config.stall = t.stall;
    __atomic_store_n(&trigger_config.on, t.on, __ATOMIC_RELEASE);
}

static void install(const struct agent_python *found UNUSED) {
    if (!capi_loaded())
        return;
    trigger_fatal_install();
    if (trigger_is_on(TRIGGER_exception))
        gil_pending(trigger_exception_install);
}

static void changed(void) {
    read_config();
    trigger_fatal_remove();
    install(NULL);
}

static void begin(struct writer *w UNUSED) {
    rearmed = 0;
    memset(requests, 0, sizeof requests);
    memset(used, 0, sizeof used);
    ids = 0;
    read_config();
    settings_watch(SETTING_triggers, changed);
    trigger_step_open();
    __atomic_store_n(&open_generation, producer_generation(), __ATOMIC_RELEASE);
}

static void round_of(struct writer *w, uint64_t now) {
    for (unsigned i = 0; i < REQUESTS; i++)
        if ((__atomic_load_n(&requests[i].state, __ATOMIC_ACQUIRE) & ~LEFT) == POSTED)
            serve(w, &requests[i]);
    trigger_step_round(w, now);
    if (now > rearmed + REARM_NS && capi_loaded()) {
        rearmed = now;
        trigger_fatal_install();
    }
}

/* From now on no trigger is served, so a dying thread must not wait for one. */
static int halt(void) {
    __atomic_store_n(&trigger_config.on, 0, __ATOMIC_RELEASE);
    return 0;
}

static void end(struct writer *w) {
    round_of(w, 0); /* serves triggers posted since the last round; at time 0 no step is slow */
    settings_watch(SETTING_triggers, NULL);
    trigger_fatal_remove();
}

const struct agent_part trigger_part = {
    .open = begin,
    .python = install,
    .round = round_of,
    .wait = trigger_step_wait,
    .halt = halt,
    .close = end,
};
