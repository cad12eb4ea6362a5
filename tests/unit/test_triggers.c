/* SPDX-License-Identifier: Apache-2.0 */
/* The setting `triggers`: what it accepts, and what it refuses without changing the result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "traces/settings.h"
#include "traces/triggers.h"

#define ALL ((1u << TRIGGER_KINDS) - 1)

static void accepts(void **state) {
    struct triggers t;
    char why[SETTING_WHY];
    (void)state;
    assert_int_equal(triggers_parse("on", &t, why, sizeof why), 0);
    assert_int_equal(t.on, ALL);
    assert_true(t.slow_step == 3 && t.hang == 10);
    assert_int_equal(triggers_parse("off", &t, why, sizeof why), 0);
    assert_int_equal(t.on, 0);
    assert_int_equal(triggers_parse("slow_step:2.5,fatal", &t, why, sizeof why), 0);
    assert_int_equal(t.on, 1u << TRIGGER_slow_step | 1u << TRIGGER_fatal);
    assert_true(t.slow_step == 2.5 && t.hang == 10);
    assert_true(t.stall == TRIGGER_STALL);
    assert_int_equal(triggers_parse("hang:20,hang:2.5s", &t, why, sizeof why), 0);
    assert_int_equal(t.on, 1u << TRIGGER_hang);
    assert_true(t.hang == 20 && t.stall == 2.5);
    assert_int_equal(triggers_parse("hang:1000,exception,term", &t, why, sizeof why), 0);
    assert_int_equal(t.on, 1u << TRIGGER_hang | 1u << TRIGGER_exception | 1u << TRIGGER_term);
    assert_true(t.slow_step == 3 && t.hang == 1000);
}

static void refuses(void **state) {
    static const char *const bad[] = {
        "",        "fatal,",    ",fatal",   "fatal:2",
        "hang:1",  "hang:1001", "hang:",    "slow",
        "hang:2x", "hang:0s",   "hang:2ss", "slow_step:2s",
        "hang:s",  "hang:0",    "on,fatal", "hang:99999999999999999999999999999999"};
    struct triggers t = {42, 1, 2, 3};
    char why[SETTING_WHY];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why[0] = 0;
        assert_true(triggers_parse(bad[i], &t, why, sizeof why) < 0);
        assert_non_null(strstr(why, "none of these"));
        assert_true(t.on == 42 && t.slow_step == 1 && t.hang == 2);
    }
}

static void is_a_setting(void **state) {
    struct setting_value v;
    char why[SETTING_WHY] = "";
    (void)state;
    assert_int_equal(setting_parse(SETTING_triggers, "hang:20,fatal", &v, why, sizeof why), 0);
    assert_string_equal(v.text, "hang:20,fatal");
    assert_true(setting_parse(SETTING_triggers, "hang:1", &v, why, sizeof why) < 0);
    assert_non_null(strstr(why, "1.1 to 1000"));
    assert_string_equal(trigger_name(TRIGGER_exception), "exception");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(is_a_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
