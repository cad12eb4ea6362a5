/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions: which of several ways to match counts, what is refused, and that a search which would take for ever is given up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/regex.h"

static void finds(const char *pattern, int flags, const char *text, const char *want,
                  const char *group) {
    struct regex *re;
    char why[REGEX_WHY];
    size_t at[REGEX_SLOTS];

    assert_int_equal(regex_compile(pattern, flags, &re, why), 0);
    int found = regex_search(re, text, strlen(text), 0, 0, at);
    assert_int_equal(found, want != NULL);
    if (want) {
        assert_int_equal(at[1] - at[0], strlen(want));
        assert_memory_equal(text + at[0], want, strlen(want));
    }
    if (group) {
        assert_int_equal(at[3] - at[2], strlen(group));
        assert_memory_equal(text + at[2], group, strlen(group));
    }
    regex_free(re);
}

static void test_matches(void **state) {
    (void)state;
    finds("^Net\\.(\\w+)", 0, "Net.first.x", "Net.first", "first");
    finds("a|ab", 0, "ab", "a", NULL); /* the first of both, not the longest */
    finds("(a+?)(b*)", 0, "aaabb", "a", "a");
    finds("(a+?)b", 0, "caaabb", "aaab", "aaa");
    finds("x{2,3}", 0, "xxxxx", "xxx", NULL);
    finds("(?:ab){2}|q", 0, "abxabab", "abab", NULL);
    finds("[^[:digit:]_]+$", 0, "12_ab", "ab", NULL);
    finds("\\bb\\w", 0, "abc bcd", "bc", NULL);
    finds("h.", 0, "h\xc3\xa9llo", "h\xc3\xa9", NULL);
    finds("[\xc3\xa4-\xc3\xbc]", 0, "a\xc3\xa9", "\xc3\xa9", NULL);
    finds("ERROR", REGEX_NO_CASE, "an error", "error", NULL);
    finds("(?i)ERR(?:or)", 0, "an ErroR", "ErroR", NULL);
    finds("\\D\\.", 0, "1.b.", "b.", NULL);
    finds("(a*)*", 0, "b", "", NULL);
    finds("((a?){1,3}){0,2}b", 0, "aab", "aab", NULL);
    finds("", 0, "abc", "", NULL);
    finds("b", 0, "aaa", NULL, NULL);
    finds("a.", 0, "a\xc3", NULL, NULL); /* no UTF-8 */
    finds("b$", 0, "b\n", NULL, NULL);
    finds("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)", 0, "abcdefghijk", "abcdefghijk", "a");
}

/* More groups than are returned, and groups that took no part. */
static void test_groups(void **state) {
    struct regex *re;
    char why[REGEX_WHY];
    size_t at[REGEX_SLOTS];

    (void)state;
    assert_int_equal(regex_compile("(a)|(b)(c)", 0, &re, why), 0);
    assert_int_equal(regex_groups(re), 3);
    assert_int_equal(regex_search(re, "xbc", 3, 0, 0, at), 1);
    assert_true(at[2] == REGEX_NOWHERE && at[3] == REGEX_NOWHERE && at[4] == 1 && at[7] == 3 &&
                at[8] == REGEX_NOWHERE);
    assert_int_equal(regex_search(re, "xbc", 3, 2, 0, at), 0);
    regex_free(re);
    /* Group k is the letter k; those that there is no slot for cannot be asked for. */
    for (size_t n = 0; n < 26; n++) {
        char pattern[26 * 3 + 1] = "";
        for (size_t k = 0; k < n; k++)
            snprintf(pattern + 3 * k, 4, "(%c)", (int)('a' + k));
        assert_int_equal(regex_compile(pattern, 0, &re, why), 0);
        size_t groups = n < REGEX_GROUPS ? n : REGEX_GROUPS - 1;
        assert_int_equal(regex_groups(re), groups);
        assert_int_equal(regex_search(re, "abcdefghijklmnopqrstuvwxyz", 26, 0, 0, at), 1);
        assert_true(at[0] == 0 && at[1] == n);
        for (size_t k = 1; k < REGEX_GROUPS; k++) {
            assert_int_equal(at[2 * k], k <= n ? k - 1 : REGEX_NOWHERE);
            assert_int_equal(at[2 * k + 1], k <= n ? k : REGEX_NOWHERE);
        }
        regex_free(re);
    }
    assert_int_equal(regex_compile("a|ab", 0, &re, why), 0);
    assert_int_equal(regex_search(re, "ab", 2, 0, REGEX_WHOLE, at), 1);
    assert_int_equal(at[1], 2);
    regex_free(re);
}

static void test_refused(void **state) {
    static const char *const wrong[] = {"(",   ")",     "a**b(",  "[a",  "*a",   "\\",
                                        "\\1", "[b-a]", "a{2,1}", "\\q", "\xff", "\\C"};
    char deep[1000], why[REGEX_WHY];
    struct regex *re;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *why = 0;
        assert_int_equal(regex_compile(wrong[i], 0, &re, why), -EINVAL);
        assert_true(strlen(why) > 5);
        assert_null(re);
    }
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(regex_compile(deep, 0, &re, why), -EINVAL);
}

/* Backtracking would take 2^30000 steps. */
static void test_given_up(void **state) {
    char text[30001], why[REGEX_WHY];
    size_t at[REGEX_SLOTS];
    struct regex *re;

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 2] = 'c';
    text[sizeof text - 1] = 0;
    assert_int_equal(regex_compile("^(a+)+$", 0, &re, why), 0);
    assert_true(regex_search(re, text, strlen(text), 0, 0, at) < 0);
    assert_true(regex_failed(re));
    assert_false(regex_failed(re));
    assert_int_equal(regex_search(re, "aaa", 3, 0, 0, at), 1);
    regex_free(re);
}

/* Finds all matches in a text. Returns how many, or -1 if a search was given up. */
static int all_matches(struct regex *re, const char *text, size_t n) {
    size_t at[REGEX_SLOTS];
    int count = 0, flags = 0;

    for (size_t from = 0; regex_search(re, text, n, from, flags, at) == 1; from = at[1], count++)
        flags = REGEX_SAME;
    return regex_failed(re) ? -1 : count;
}

/* In a text that is no UTF-8, each search examines all that follows: after 2^30 bytes of this it is given up. In one that is, no byte is
 * examined twice. */
static void test_many_matches(void **state) {
    enum { MANY = 60000, FEW = 1000 };
    static char text[MANY + 1];
    char why[REGEX_WHY];
    struct regex *re;

    (void)state;
    memset(text, 'a', MANY);
    assert_int_equal(regex_compile("a", 0, &re, why), 0);
    assert_int_equal(all_matches(re, text, MANY), MANY);
    text[MANY - 1] = (char)0xff;
    assert_int_equal(all_matches(re, text, MANY), -1);
    text[FEW - 1] = (char)0xff;
    assert_int_equal(all_matches(re, text, FEW), FEW - 1);
    assert_int_equal(all_matches(re, text, FEW - 1), FEW - 1);
    regex_free(re);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_many_matches)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
