/* SPDX-License-Identifier: Apache-2.0 */
/* agent/core/steps.h: who is told of a step's end, in which order, and which step a value of the program belongs to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/core/steps.c"

static char told[128];

static void note(const char *who, const struct step *s) {
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s%d@%d/%d ", who, (int)s->number, (int)steps_current(),
             (int)steps_of_now());
}

static void first(const struct step *s) {
    note("a", s);
}
static void second(const struct step *s) {
    note("b", s);
}
#define FILLER(n)                                                                                  \
    static void filler##n(const struct step *s) {                                                  \
        (void)s;                                                                                   \
    }
FILLER(0)
FILLER(1)
FILLER(2)
FILLER(3)
FILLER(4)
FILLER(5)

static void listeners_are_told_in_order(void **state) {
    (void)state;
    steps_after_fork();
    told[0] = 0;
    steps_ended(&(struct step){.number = 0, .end = 5}); /* nobody listens yet */
    assert_string_equal(told, "");
    assert_int_equal(steps_on_end(first), 0);
    assert_int_equal(steps_on_end(second), 0);
    assert_int_equal(steps_on_end(first), -EALREADY);
    steps_underway(1);
    steps_ended(&(struct step){.number = 6, .end = 70});
    assert_string_equal(told, "a6@7/6 b6@7/6 "); /* the next step has begun, and had no pass yet */
    assert_int_equal(steps_last_sign, 70);
}

static void a_value_belongs_to_the_step_with_a_pass(void **state) {
    (void)state;
    steps_after_fork();
    assert_int_equal(steps_current(), 0);
    assert_int_equal(steps_of_now(), 0);
    steps_ended(&(struct step){.number = 0, .end = 1});
    assert_int_equal(steps_current(), 1);
    assert_int_equal(steps_of_now(), 0);
    steps_underway(1);
    assert_int_equal(steps_of_now(), 1);
    steps_ended(&(struct step){.number = 1, .end = 2});
    assert_int_equal(steps_of_now(), 1);
}

static void a_forked_child_begins_anew(void **state) {
    (void)state;
    steps_ended(&(struct step){.number = 8, .end = 3});
    steps_underway(1);
    steps_begun = 9;
    steps_after_fork();
    assert_true(!steps_current() && !steps_of_now() && !steps_last_sign && !steps_begun);
    told[0] = 0;
    steps_ended(&(struct step){.number = 0, .end = 4}); /* who listens is the same */
    assert_string_equal(told, "a0@1/0 b0@1/0 ");
}

static void there_is_no_place_for_more(void **state) {
    static steps_fn *const fillers[] = {filler0, filler1, filler2, filler3, filler4, filler5};
    (void)state;
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++)
        assert_int_equal(steps_on_end(fillers[i]), 0);
    assert_int_equal(steps_on_end(filler5), -EALREADY);
    assert_int_equal(steps_on_end((steps_fn *)there_is_no_place_for_more), -ENOSPC);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners_are_told_in_order),
        cmocka_unit_test(a_value_belongs_to_the_step_with_a_pass),
        cmocka_unit_test(a_forked_child_begins_anew),
        cmocka_unit_test(there_is_no_place_for_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
