/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions: which way counts, what is refused, and that a pattern which others need an age for takes none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/regex.h"

static void finds(const char *pattern, int flags, const char *text, const char *want,
                  const char *group) {
    struct regex *re;
    const char *why;
    size_t at[REGEX_SLOTS];

    assert_int_equal(regex_compile(pattern, flags, &re, &why), 0);
    int found = regex_search(re, text, strlen(text), 0, at);
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
    finds("a{,2}", 0, "a{,2}", "a{,2}", NULL);
    finds("\\D\\.", 0, "1.b.", "b.", NULL);
    finds("(a*)*", 0, "b", "", NULL);
    finds("((a?){1,3}){0,2}b", 0, "aab", "aab", NULL);
    finds("", 0, "abc", "", NULL);
    finds("b", 0, "aaa", NULL, NULL);
    finds("\xff", 0, "a\xc3", NULL, NULL); /* no UTF-8 */
}

static void test_refused(void **state) {
    static const char *const wrong[] = {"(",
                                        ")",
                                        "a**b(",
                                        "[a",
                                        "*a",
                                        "\\",
                                        "\\1",
                                        "(?=a)",
                                        "(?<n>a)",
                                        "[b-a]",
                                        "a{2,1}",
                                        "a{1001}",
                                        "((((((a{1000}){1000}){1000}){1000}){1000}){1000})",
                                        "\\q"};
    char deep[1000];
    struct regex *re;
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why = NULL;
        assert_int_equal(regex_compile(wrong[i], 0, &re, &why), -EINVAL);
        assert_non_null(why);
        assert_null(re);
    }
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(regex_compile(deep, 0, &re, &why), -EINVAL);
}

/* Backtracking would take 2^30 steps. */
static void test_linear(void **state) {
    char text[30001];

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    finds("^(a+)+$|(a|a)*b", 0, text, text, NULL);
    text[sizeof text - 2] = 'c';
    finds("^(a+)+$", 0, text, NULL, NULL);
    finds("(a?){30}a{30}b", 0, text, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_linear)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
