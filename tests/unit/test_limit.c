/* SPDX-License-Identifier: Apache-2.0 */
/* agent/base/limit.h: the share of the time that is spent, and that every name gets its turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/limit.h"

#define NAMES 2000

static struct limit_name names_of[NAMES];
static unsigned served[NAMES];
static unsigned inner_calls = 1;

/* Makes `names` calls in a row, `gap` ns apart, again and again for `ns`; each one that is served costs `cost` ns. Returns the time spent. */
static uint64_t run(struct limit *m, unsigned names, uint64_t gap, uint64_t cost, uint64_t ns,
                    int rare_every) {
    uint64_t now = 1000000, end = now + ns, spent = 0, turn = 0;
    memset(names_of, 0, sizeof names_of);
    memset(served, 0, sizeof served);
    for (; now < end; turn++)
        for (unsigned i = 0; i < names; i++) {
            if (rare_every && i == 0 && turn % (unsigned)rare_every)
                continue;
            for (unsigned k = 0; k < (i + 1 == names ? inner_calls : 1); k++) {
                now += gap;
                if (!limit_due(m, &names_of[i], now))
                    continue;
                served[i]++;
                spent += cost;
                limit_spent(m, cost / 2);
                limit_spent(m, cost / 2);
                now += cost;
            }
        }
    return spent;
}

static void test_share(void **state) {
    (void)state;
    static const struct {
        unsigned names;
        uint64_t gap, cost;
    } cases[] = {
        {1, 500, 4000},     {7, 2000, 4000},     {200, 5000, 6000},
        {1000, 1000, 3000}, {2000, 50000, 9000}, {50, 300000, 20000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct limit m;
        uint64_t ns = 20000000000u, spent;
        limit_start(&m, 5000, 7);
        spent = run(&m, cases[i].names, cases[i].gap, cases[i].cost, ns, 0);
        uint64_t most = ns / LIMIT_SHARE + LIMIT_CREDIT, want = ns / LIMIT_SHARE * 6 / 10;
        uint64_t all = ns / (cases[i].gap + cases[i].cost) * cases[i].cost;
        assert_in_range(spent, 1, most);
        if (all > 2 * most) /* there was more to do than credit: it was not left unused */
            assert_in_range(spent, want, most);
    }
}

static void test_fair(void **state) {
    (void)state;
    struct limit m;
    uint64_t sum = 0;
    limit_start(&m, 5000, 3);
    run(&m, 300, 20000, 5000, 60000000000u, 0); /* 10,000 turns; some 30,000 can be paid for */
    for (unsigned i = 0; i < 300; i++)
        sum += served[i];
    for (unsigned i = 0; i < 300; i++) /* none three times as often as the mean, none a third */
        if (served[i] * 3 < sum / 300 || served[i] > sum / 300 * 3)
            fail_msg("name %u: %u times, the mean is %lu", i, served[i],
                     (unsigned long)(sum / 300));
}

/* A name that is called once in a hundred turns is served in a good part of its calls, some of 30 to 60. */
static void test_rare(void **state) {
    (void)state;
    struct limit m;
    limit_start(&m, 5000, 3);
    run(&m, 300, 20000, 5000, 60000000000u, 100); /* called 100 times */
    if (served[0] < 25)
        fail_msg("the rare one was served %u times", served[0]);
    limit_start(&m, 5000, 3);
    unsigned inner = 0;
    inner_calls = 200; /* the last name is called 200 times in each turn */
    run(&m, 100, 20000, 5000, 60000000000u, 0);
    inner_calls = 1;
    for (unsigned i = 0; i < 99; i++)
        inner += served[i];
    if (served[99] > 4 * inner / 99 || served[99] * 4 < inner / 99)
        fail_msg("the inner one %u times, the outer ones %u each", served[99], inner / 99);
}

static void test_all_when_cheap(void **state) {
    (void)state;
    struct limit m;
    limit_start(&m, 5000, 3);
    run(&m, 10, 5000000, 4000, 10000000000u, 0); /* 0.08 %: every one */
    for (unsigned i = 0; i < 10; i++)
        assert_in_range(served[i], 199, 201);
}

/* What comes first gets half of the time at most, and the other names get the rest. */
static void test_half_for_the_rare(void **state) {
    (void)state;
    struct limit m;
    struct limit_name name = {0, 0};
    uint64_t rare = 0, calls = 0, ns = 20000000000u;
    limit_start(&m, 5000, 3);
    for (uint64_t now = 1000; now < ns; now += 1000) {
        if (limit_rare(&m, now)) {
            rare += 5000;
            limit_spent_rare(&m, 5000);
        }
        if (limit_due(&m, &name, now)) {
            calls += 5000;
            limit_spent(&m, 5000);
        }
    }
    assert_in_range(rare, ns / LIMIT_SHARE * 45 / 100, ns / LIMIT_SHARE / 2 + LIMIT_CREDIT);
    assert_in_range(rare + calls, ns / LIMIT_SHARE * 8 / 10, ns / LIMIT_SHARE + LIMIT_CREDIT);
}

/* The period, computed by hand: the limit is a four-hundredth of 400 ms; nine tenths of that are planned with, which pay for 180 calls of 5 us;
 * and one more. */
static void test_a_tenth_is_kept_back(void **state) {
    (void)state;
    struct limit m;
    limit_start(&m, 5000, 3);
    m.calls = 10000;
    m.names = 7;
    limit_adapt(&m, 400000000);
    assert_int_equal(m.period, 7 * 10000 / 181);
    assert_int_equal(m.known, 7);
    assert_int_equal(m.cost, 5000); /* none was served: what was known of the cost stays */
    /* Each cost 3 us, and there were fewer calls than can be paid for: all of them. */
    m.served = 10;
    m.spent = 30000;
    m.calls += 200;
    limit_adapt(&m, 800000000);
    assert_int_equal(m.cost, 3001);
    assert_int_equal(m.period, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_fair),
        cmocka_unit_test(test_rare),
        cmocka_unit_test(test_all_when_cheap),
        cmocka_unit_test(test_half_for_the_rare),
        cmocka_unit_test(test_a_tenth_is_kept_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
