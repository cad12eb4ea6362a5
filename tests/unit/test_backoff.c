/* SPDX-License-Identifier: Apache-2.0 */
/* agent/sampler/backoff.h: each tick is counted exactly once, whatever comes between; and a thread that works at fixed times is seen as often as
 * it works. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/sampler/backoff.h"

#define MS 1000000u

static uint64_t next_random(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x >> 8;
}

/* Ticks that come late, in groups or alone; a thread that is found asleep or awake by chance, or must be looked at now. */
static void test_each_tick_once(void **state) {
    uint64_t begin = 1000 * MS, next = begin, stood = 0, looks = 0, ticks = 0;
    struct backoff r = {0};
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t sleepy = i / 1000 % 4, missed = next_random() % 50 ? 0 : next_random() % 40;
        uint64_t span = next_random() % 20 ? 1 : 1 + next_random() % 8;
        struct tick mine, tick = {.span = span, .missed = missed};
        next += (missed + span) * MS;
        ticks += missed + span;
        tick.last = next;
        tick.at = next - next_random() % span * MS;
        if (next_random() % 100 == 0)
            r.due = 0;
        if (!backoff_due(&r, MS, &tick, &mine))
            continue;
        looks++;
        assert_true(mine.span >= 1 && mine.missed <= missed && mine.last >= tick.last);
        assert_true(mine.at == tick.at);
        stood += mine.span + mine.missed;
        if (i == 0) /* the first look at a thread: of the ticks until then it knows nothing */
            assert_int_equal(stood, missed + span);
        assert_int_equal(stood, (mine.last - begin) / MS);
        if (next_random() % 4 < sleepy)
            backoff_give(&r, MS, mine.missed + mine.span, next_random());
        else
            r.asleep = 0;
        assert_true(r.covered <=
                    next + 40 * MS); /* 8, and 8 more for each time that it was told to look now */
    }
    assert_true(looks > 10000 && stood + 40 >= ticks && stood <= ticks + 40);
}

/* A thread that sleeps for `asleep` ticks and is awake for `awake`, again and again. Returns the share of the ticks that find it awake. */
static double seen_awake(unsigned asleep, unsigned awake, uint64_t *looks) {
    struct backoff r = {0};
    uint64_t found = 0, all = 0;
    for (uint64_t i = 1; i <= 2000000; i++) {
        struct tick mine, tick = {.at = i * MS, .last = i * MS, .span = 1};
        if (!backoff_due(&r, MS, &tick, &mine))
            continue;
        ++*looks;
        all += mine.span;
        if (i % (asleep + awake) >= asleep) {
            found += mine.span;
            r.asleep = 0;
        } else {
            backoff_give(&r, MS, mine.span, next_random());
        }
    }
    return (double)found / (double)all;
}

static void test_truth(void **state) {
    static const unsigned shapes[][2] = {{1, 1},  {4, 1},  {5, 1},  {6, 2},   {7, 1},   {8, 8},
                                         {13, 3}, {24, 6}, {31, 1}, {100, 2}, {500, 20}};
    (void)state;
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint64_t looks = 0;
        double truth = (double)shapes[i][1] / (shapes[i][0] + shapes[i][1]);
        double seen = seen_awake(shapes[i][0], shapes[i][1], &looks);
        if (fabs(seen - truth) > 0.005)
            fail_msg("asleep %u, awake %u: seen awake %.4f, not %.4f", shapes[i][0], shapes[i][1],
                     seen, truth);
    }
}

static void test_looks(void **state) {
    uint64_t looks = 0;
    (void)state;
    assert_true(seen_awake(1u << 30, 0, &looks) == 0);
    assert_true(looks < 2000000 / 7 && looks > 2000000 / 9);
    looks = 0;
    assert_true(seen_awake(0, 1, &looks) == 1);
    assert_int_equal(looks, 2000000); /* who is awake is looked at in each */
    /* and so is everybody at 100 Hz */
    assert_int_equal(backoff_ticks(1000, 10 * MS, BACKOFF_MAX), 1);
    assert_int_equal(backoff_ticks(3, MS, BACKOFF_MAX), 1);
    assert_int_equal(backoff_ticks(1000, MS, BACKOFF_MAX), 8);
    /* A longer run is never longer than half the time that the thread has been asleep. */
    assert_int_equal(backoff_ticks(1000, MS, 200 * MS), 200);
    assert_int_equal(backoff_ticks(100, MS, 200 * MS), 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_tick_once),
        cmocka_unit_test(test_truth),
        cmocka_unit_test(test_looks),
    };
    return cmocka_run_group_tests_name("rest", tests, NULL, NULL);
}
