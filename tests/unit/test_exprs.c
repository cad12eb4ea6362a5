/* SPDX-License-Identifier: Apache-2.0 */
/* traces/exprs.h: which texts are expressions and which are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "traces/exprs.h"

static void good(void **state) {
    struct exprs x = {.n = 0};
    char why[256] = "";
    (void)state;
    assert_int_equal(
        exprs_parse("loss@train, self.lr@Trainer.fit,top@<module>,", &x, why, sizeof why), 0);
    assert_int_equal(x.n, 3);
    assert_string_equal(x.expr[0].name, "loss");
    assert_string_equal(x.expr[0].func, "train");
    assert_string_equal(x.expr[1].name, "self.lr");
    assert_string_equal(x.expr[1].func, "Trainer.fit");
    assert_string_equal(x.expr[2].func, "<module>");
    assert_int_equal(exprs_parse("loss@train,b@main.<locals>.go", &x, why, sizeof why), 0);
    assert_int_equal(x.n, 4); /* one was there already */
    assert_string_equal(x.expr[3].func, "main.<locals>.go");
    assert_int_equal(exprs_parse("", &x, why, sizeof why), 0);
    assert_int_equal(exprs_parse("gr\xc3\xb6\xc3\x9f"
                                 "e@f_1",
                                 &x, why, sizeof why),
                     0);
    assert_int_equal(x.n, 5);
    assert_int_equal(exprs_parse("x@<lambda>,x@<genexpr>", &x, why, sizeof why), 0);
    assert_int_equal(x.n, 7);
    /* Expressions that are there already, in whatever place. */
    assert_int_equal(exprs_parse("self.lr@Trainer.fit,b@main.<locals>.go", &x, why, sizeof why), 0);
    assert_int_equal(x.n, 7);
}

static void bad(void **state) {
    static const char *const texts[] = {
        "loss",  "@f",    "loss@",     "a@b@c",     "1a@f",   "a@1f",      "a.@f",
        ".a@f",  "a@f.",  "a b@f",     "a@f g",     "a[0]@f", ",a@f",      "a@f,,b@f",
        "a()@f", "a=1@f", "a@<other>", "a@<module", "a@@f",   "a@<nodule>"};
    char why[256];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct exprs x = {.n = 0};
        why[0] = 0;
        if (!exprs_parse(texts[i], &x, why, sizeof why))
            fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(x.n, 0);
        assert_non_null(strstr(why, "NAME@FUNCTION"));
    }
}

static void bounds(void **state) {
    struct exprs x = {.n = 0};
    char text[64], why[256], name[EXPRS_TEXT + 8];
    (void)state;
    for (unsigned i = 0; i < EXPRS_MAX; i++) {
        snprintf(text, sizeof text, "v%u@f", i);
        assert_int_equal(exprs_parse(text, &x, why, sizeof why), 0);
    }
    assert_int_equal(exprs_parse("v0@f", &x, why, sizeof why), 0); /* no new one */
    assert_true(exprs_parse("more@f", &x, why, sizeof why) < 0);
    assert_int_equal(x.n, EXPRS_MAX);
    memset(name, 'a', sizeof name);
    strcpy(name + EXPRS_TEXT - 1, "@f");
    x.n = 0;
    assert_int_equal(exprs_parse(name, &x, why, sizeof why), 0);
    strcpy(name + EXPRS_TEXT - 1, "a@f");
    assert_true(exprs_check(name, why, sizeof why) < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),
        cmocka_unit_test(bad),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
