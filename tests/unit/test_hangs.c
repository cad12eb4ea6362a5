/* SPDX-License-Identifier: Apache-2.0 */
/* agent/trigger/trigger_step.c: slow steps, and when no step counts as a hang, however slow the service thread is, and however long the process was stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/core/steps.c"
#define steps trigger_steps
#include "agent/trigger/trigger_step.c"
#undef steps

struct capi py;
struct triggers trigger_config = {.on = 1u << TRIGGER_hang, .hang = 10, .stall = 3};
static struct trigger fired, written;
static unsigned hangs, emitted; /* hangs: triggers that were posted */
static int worker;

int producer_recording(void) {
    return 1;
}

int role_is_worker(void) {
    return worker;
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
    (void)w;
    written = *t;
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
    char took[64];
    snprintf(took, sizeof took, "took %.3f ms, median 10.000 ms", (double)(now - begin) / 1e6);
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
    char took[64];
    snprintf(took, sizeof took, "took %.3f ms, median 10.000 ms", (double)(now - begin) / 1e6);
    for (int i = 0; i < 8; i++)
        now = round_at(now, 0, SYS_MS); /* the next step is not slow yet */
    assert_int_equal(hangs, 1);
    assert_int_equal(emitted, 1);
    assert_string_equal(written.detail, took);
}

/* Before anything has begun, only a rank of a distributed job is expected to do something. */
static void who_is_expected_to_begin(void **state) {
    (void)state;
    trigger_config.on = 1u << TRIGGER_hang;
    for (worker = 0; worker < 2; worker++) {
        trigger_step_open();
        hangs = 0;
        uint64_t opened = trigger_steps.opened, now = opened;
        while (now <= opened + 10000 * SYS_MS) {
            now = round_at(now, 0, 250 * SYS_MS);
            assert_int_equal(hangs, worker && now > opened + 3250 * SYS_MS);
        }
    }
    worker = 0;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Each step that ends is compared with the median of the 50 before it: slow is what takes three times that, and 5 ms more; from the tenth on. */
static void slow_is_what_the_median_says(void **state) {
    enum { STEPS = 400, RANGES = 4 };
    static const uint64_t most[RANGES] = {3, 40, 1000,
                                          400000}; /* us; of a few values many are the same */
    uint64_t d[STEPS], sorted[50], seed = 1;
    unsigned slow = 0;
    (void)state;
    trigger_config.on = 1u << TRIGGER_slow_step;
    trigger_config.slow_step = 3;
    for (unsigned range = 0; range < RANGES; range++) {
        trigger_step_open();
        uint64_t begin = sys_now();
        for (size_t i = 0; i < STEPS; i++, begin += d[i - 1]) {
            size_t n = i < 50 ? i : 50;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            d[i] = (1 + (seed >> 33) % most[range]) * 1000;
            if (seed >> 60 == 0)
                d[i] = d[i] * 4 + (seed >> 59 & 1) * 6000000;
            memcpy(sorted, d + i - n, n * sizeof *d);
            qsort(sorted, n, sizeof *sorted, by_value);
            uint64_t m = n < 10 ? 0 : sorted[n / 2];
            hangs = 0;
            fired.step = -1;
            steps_ended(&(struct step){.number = i, .begin = begin, .end = begin + d[i]});
            assert_int_equal(hangs, m && d[i] > 3 * m && d[i] > m + 5000000);
            assert_int_equal(fired.step, hangs ? (int64_t)i : -1);
            slow += hangs;
        }
    }
    assert_true(slow > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_round_moves_no_hang),
        cmocka_unit_test(a_stop_is_no_hang),
        cmocka_unit_test(short_stops_are_no_hang),
        cmocka_unit_test(a_slow_step_is_reported_twice),
        cmocka_unit_test(who_is_expected_to_begin),
        cmocka_unit_test(slow_is_what_the_median_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
