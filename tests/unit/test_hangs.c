/* SPDX-License-Identifier: Apache-2.0 */
/* agent/trigger/trigger_step.c: slow steps, and when no step counts as a hang, however slow the service thread is, and however long the process was stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/core/steps.c"
#define steps trigger_steps
#include "agent/trigger/trigger_step.c"
#undef steps

struct capi py;
struct triggers trigger_config = {.on = 1u << TRIGGER_hang, .hang = 10, .stall = 3};
static struct trigger fired;
static unsigned hangs, emitted; /* hangs: triggers that were posted */

int producer_recording(void) {
    return 1;
}

int role_is_worker(void) {
    return 0;
}

int capi_usable(void) {
    return 1;
}

int trigger_is_on(enum trigger_kind kind) {
    return trigger_config.on >> kind & 1;
}

struct trigger *trigger_new(enum trigger_kind kind) {
    return trigger_is_on(kind) ? &fired : NULL;
}

void trigger_post(struct trigger *t, int wait_ms) {
    (void)t, (void)wait_ms;
    hangs++;
}

void trigger_emit(struct writer *w, const struct trigger *t) {
    (void)w, (void)t;
    emitted++;
}

/* A round of the service thread that takes `work`, and its sleep, which the trigger may shorten. Returns the time of the next round. */
static uint64_t round_at(uint64_t now, uint64_t work, uint64_t sleep) {
    trigger_step_round(NULL, now);
    uint64_t wait = trigger_step_wait(now + work);
    return now + work + (sleep < wait ? sleep : wait);
}

/* Returns how long after the last sign of life a hang is found, ns, when each round takes `work` and each sleep `sleep`. */
static uint64_t found_after(uint64_t work, uint64_t sleep) {
    trigger_step_open();
    hangs = 0;
    uint64_t begin = sys_now(), now = begin;
    steps_alive(begin);
    while (!hangs && now < begin + 60000 * SYS_MS) {
        uint64_t at = now;
        now = round_at(now, work, sleep);
        if (hangs)
            return at - begin;
    }
    return UINT64_MAX;
}

/* However long the writing to a slow disk takes: it is the step that hangs, and it is found in the first round after its time. */
static void a_slow_round_moves_no_hang(void **state) {
    (void)state;
    for (uint64_t work = 0; work <= 5000; work += 250) {
        uint64_t took = found_after(work * SYS_MS, 250 * SYS_MS);
        assert_in_range(took, 3000 * SYS_MS + 1, 3000 * SYS_MS + (work + 250) * SYS_MS);
    }
}

/* The process sleeps for longer than was asked for: it was stopped, and nothing could go on. */
static void a_stop_is_no_hang(void **state) {
    (void)state;
    trigger_step_open();
    hangs = 0;
    uint64_t now = sys_now();
    steps_alive(now);
    now = round_at(now, 0, 3600000 * SYS_MS);
    uint64_t resumed = now;
    while (now <= resumed + 3000 * SYS_MS) {
        now = round_at(now, 0, 250 * SYS_MS);
        assert_int_equal(hangs, 0);
    }
    round_at(now, 0, 250 * SYS_MS); /* since it goes on, it has hung */
    assert_int_equal(hangs, 1);
}

/* A step that is stopped again and again, each time for less than a hang takes. It is not slow either, also where the thread that ends it goes on
 * before the service thread does. */
static void short_stops_are_no_hang(void **state) {
    (void)state;
    trigger_config.on = 1u << TRIGGER_hang | 1u << TRIGGER_slow_step;
    trigger_config.slow_step = 3;
    trigger_step_open();
    uint64_t begin = sys_now();
    for (unsigned i = 0; i < 20; i++, begin += 100 * SYS_MS)
        steps_ended(&(struct step){.number = i, .begin = begin, .end = begin + 100 * SYS_MS});
    hangs = 0;
    uint64_t now = begin;
    for (int i = 0; i < 6; i++, now += 700 * SYS_MS)
        round_at(now, 0, 0);
    steps_ended(&(struct step){.number = 20, .begin = begin, .end = now});
    round_at(now, 0, 0);
    assert_int_equal(hangs, 0);
    trigger_config.on = 1u << TRIGGER_hang;
}

/* While it lasts, and once more when it ends, however many rounds of the service thread follow. */
static void a_slow_step_is_reported_twice(void **state) {
    (void)state;
    trigger_config.on = 1u << TRIGGER_slow_step;
    trigger_config.slow_step = 3;
    trigger_step_open();
    uint64_t begin = sys_now();
    for (unsigned i = 0; i < 20; i++, begin += 10 * SYS_MS)
        steps_ended(&(struct step){.number = i, .begin = begin, .end = begin + 10 * SYS_MS});
    hangs = emitted = 0;
    uint64_t now = begin;
    trigger_step_wait(now);
    for (int i = 0; i < 8; i++)
        now = round_at(now, 0, 250 * SYS_MS);
    assert_int_equal(hangs, 1);
    assert_int_equal(emitted, 0);
    steps_ended(&(struct step){.number = 20, .begin = begin, .end = now});
    for (int i = 0; i < 8; i++)
        now = round_at(now, 0, SYS_MS); /* the next step is not slow yet */
    assert_int_equal(hangs, 1);
    assert_int_equal(emitted, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_round_moves_no_hang),
        cmocka_unit_test(a_stop_is_no_hang),
        cmocka_unit_test(short_stops_are_no_hang),
        cmocka_unit_test(a_slow_step_is_reported_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
