/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h: the shortest text of a number, compared with printf() and strtod(); integers at the ends of their range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/numbers.h"

/* Expects the fewest digits that read back as the same number, from 15 on, with a point or an exponent. */
static void expect(double v) {
    char text[NUMBERS_REAL], truth[NUMBERS_REAL];
    size_t n = numbers_real(v, text);

    for (int i = 15; i <= 17; i++) {
        snprintf(truth, sizeof truth, "%.*g", i, v);
        if (strtod(truth, NULL) == v)
            break;
    }
    if (isfinite(v) && !strpbrk(truth, ".e"))
        strcat(truth, ".0");
    assert_string_equal(text, truth);
    assert_int_equal(n, strlen(text));
}

static uint64_t rnd(void) {
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static void test_reals_of_all_sizes(void **state) {
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = rnd();
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isfinite(v))
            expect(v);
        /* Values as they are measured: times since the epoch and durations, with nanoseconds; short decimals. */
        expect((double)(1760000000000000000 + (int64_t)(rnd() >> 16)) / 1e9);
        expect((double)(rnd() >> (rnd() & 63)) / 1e9);
        expect((double)(rnd() % 100000) / 1000);
        expect(-ldexp((double)(rnd() >> 11), (int)(rnd() % 64) - 66));
    }
}

static void test_reals_at_the_edges(void **state) {
    (void)state;
    const double at[] = {0.0,  -0.0, DBL_MIN, DBL_MAX, 5e-324, 1e-4, 1e15,
                         1e16, 1e17, 0.5,     1,       0.1,    0.3};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        expect(at[i]);
    for (int x = -6; x < 18; x++) {
        double v = pow(10, x);
        for (int i = 0; i < 40; i++) { /* on both sides of a power of ten, and of two */
            expect(v = nextafter(v, 0));
            expect(-v);
        }
        v = pow(10, x);
        for (int i = 0; i < 40; i++)
            expect(v = nextafter(v, INFINITY));
        for (int i = 1; i < 4; i++)
            expect(9.99999999999999 * pow(10, x) + ldexp(i, -40));
    }
    for (int e = -20; e < 60; e++) {
        expect(ldexp(1, e));
        expect(nextafter(ldexp(1, e), 0));
        expect(nextafter(ldexp(1, e), INFINITY));
    }
}

static void test_integers(void **state) {
    (void)state;
    const int64_t at[] = {0, 1, -1, 9, 10, -10, INT64_MAX, INT64_MIN, 1760000000};
    char *text = NULL, truth[800] = "";
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        put_int(f, at[i]);
        put_uint(f, (uint64_t)at[i]);
        put_char(f, ' ');
        put_digits(f, (uint64_t)at[i], 6);
        snprintf(truth + strlen(truth), 80, "%" PRId64 "%" PRIu64 " %06" PRIu64, at[i],
                 (uint64_t)at[i], (uint64_t)at[i]);
    }
    fclose(f);
    assert_string_equal(text, truth);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reals_of_all_sizes),
        cmocka_unit_test(test_reals_at_the_edges),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
