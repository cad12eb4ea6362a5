/* SPDX-License-Identifier: Apache-2.0 */
/* tools/thin.h against a sum over all values: whatever columns are merged, no extreme, sum or second is lost, and each stands in its column. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/thin.h"

enum { ROWS = 5, VALUES = 3000 };

static struct value {
    unsigned row;
    double at, v;
} values[VALUES];

/* The column of a time of 0 to 64 s. */
static uint32_t column_of(const struct thin *t, double at) {
    uint32_t n = thin_columns(t);

    return at < 0 ? 0 : at >= 64 ? n - 1 : (uint32_t)(at / 64 * n);
}

static void compare(const struct thin *t) {
    for (uint32_t r = 0; r < thin_rows(t); r++)
        for (uint32_t c = 0; c < thin_columns(t); c++) {
            const struct thin_cell *cell = thin_cell(t, r, c);
            double sum = 0, min = INFINITY, max = -INFINITY;
            uint32_t count = 0;
            for (const struct value *v = values; v < values + VALUES; v++)
                if (v->row == r && isfinite(v->v) && column_of(t, v->at) == c) {
                    sum += v->v;
                    min = fmin(min, v->v);
                    max = fmax(max, v->v);
                    count++;
                }
            assert_int_equal(cell->count, count);
            if (count)
                assert_true(cell->min == (float)min && cell->max == (float)max &&
                            fabs(cell->sum - sum) < 1e-6);
        }
}

static void values_of_a_moment(void **state) {
    struct thin *t;
    char key[16];

    (void)state;
    srand(7);
    /* 5 rows of 64 columns: as many cells as there may be, one less, and so few that 16 columns are left, which are never merged */
    for (uint32_t most = 320, columns = 64; most; most = most == 320 ? 319 : most == 319 ? 1 : 0) {
        assert_int_equal(thin_new(&t, 0, 64, 64, most), 0);
        for (struct value *v = values; v < values + VALUES; v++) {
            v->row = v < values + ROWS ? (unsigned)(v - values) : (unsigned)rand() % ROWS;
            v->at =
                rand() % 1000 * 0.07 - 2; /* some before the first column or after the last one */
            v->v = rand() % 200 - 100;
            if (v == values + 100)
                v->v = NAN;
            snprintf(key, sizeof key, "row %u", v->row);
            assert_int_equal(thin_row(t, key), v->row);
            thin_add(t, v->row, v->at, 0, v->v);
        }
        assert_int_equal(thin_columns(t), columns);
        assert_int_equal(thin_rows(t), ROWS);
        compare(t);
        thin_halve(t);
        compare(t);
        assert_string_equal(thin_key(t, 3), "row 3");
        thin_free(t);
        columns = columns == 64 ? 32 : 16;
    }
}

static void many_keys(void **state) {
    struct thin *t;
    char key[16];

    (void)state;
    assert_int_equal(thin_new(&t, 0, 1, 16, 1u << 30), 0);
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < 1000; i++) {
            unsigned k = round ? 999 - i : i;
            snprintf(key, sizeof key, "%u", k);
            assert_int_equal(thin_row(t, key), k);
            thin_add(t, k, .5, 0, k);
        }
    assert_int_equal(thin_rows(t), 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(thin_cell(t, i, 8)->count == 2 && thin_cell(t, i, 8)->sum == 2. * i);
    assert_int_equal(thin_failed(t), 0);
    thin_free(t);
}

/* A value that holds for some time stands in each column of it; the seconds that are covered are shared among them. */
static void values_that_last(void **state) {
    struct thin *t;

    (void)state;
    assert_int_equal(thin_new(&t, 100, 116, 16, 1000), 0);
    uint32_t r = thin_row(t, "a"), s = thin_row(t, "b");
    thin_add(t, r, 102.5, 2, 7);
    thin_add(t, r, 110.5, -1, 8); /* no length */
    thin_add(t, r, 115.5, 10, 9);
    thin_add(t, r + 9, 102, 1, 1); /* no such row */
    thin_add(t, r, NAN, 1, 1);
    for (uint32_t c = 0; c < 16; c++) {
        const struct thin_cell *cell = thin_cell(t, r, c);
        double truth = c >= 2 && c <= 4 ? 7 : c == 10 ? 8 : c == 15 ? 9 : 0;
        assert_true(cell->count == (truth > 0) && cell->sum == truth && cell->max == truth);
    }
    thin_spread(t, s, 102.5, 2.25);
    thin_spread(t, s, 103.25, .5);
    thin_spread(t, s, 98, 2.5);
    thin_spread(t, s, 115.75, 3);
    thin_spread(t, s, 105, -1);
    thin_spread(t, s, 105, INFINITY);
    static const double covered[16] = {.5, 0, .5, 1.5, .75, [15] = .25};
    for (uint32_t c = 0; c < 16; c++)
        assert_true(thin_cell(t, s, c)->sum == covered[c]);
    assert_true(thin_cell(t, s, 3)->max == 2.25f && thin_cell(t, s, 3)->min == .5f);
    thin_free(t);
    assert_int_equal(thin_new(&t, 5, 5, 16, 1000), 0); /* no time at all: one moment */
    thin_add(t, thin_row(t, "a"), 5, 0, 1);
    assert_int_equal(thin_cell(t, 0, 0)->count, 1);
    thin_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_a_moment),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(values_that_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
