/* SPDX-License-Identifier: Apache-2.0 */
/* varint.h: every length, both ends of the range, broken input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "traces/varint.h"

static void test_round_trip(void **state) {
    (void)state;
    uint8_t buf[VARINT_MAX];
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = (1ull << bit) + (uint64_t)(int64_t)d, got = 0;
            uint8_t *end = varint_put(buf, v);
            assert_true(end - buf >= 1 && end - buf <= VARINT_MAX);
            assert_ptr_equal(varint_get(buf, end, &got), end);
            assert_true(got == v);
            for (const uint8_t *cut = buf; cut < end; cut++) /* every truncation is refused */
                assert_null(varint_get(buf, cut, &got));
        }
    }
}

static void test_known_bytes(void **state) {
    (void)state;
    uint8_t buf[VARINT_MAX];
    assert_int_equal(varint_put(buf, 0) - buf, 1);
    assert_int_equal(buf[0], 0);
    assert_int_equal(varint_put(buf, 300) - buf, 2);
    assert_memory_equal(buf, "\xac\x02", 2);
    assert_int_equal(varint_put(buf, UINT64_MAX) - buf, 10);
    assert_memory_equal(buf, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
}

static void test_longer_than_needed(void **state) {
    (void)state;
    uint64_t v = 99;
    /* The writer pads the first time of each type: ten bytes are legal, eleven are not. */
    const uint8_t ten[] = {0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    const uint8_t eleven[] = {0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    assert_ptr_equal(varint_get(ten, ten + 10, &v), ten + 10);
    assert_int_equal(v, 5);
    assert_null(varint_get(eleven, eleven + 11, &v));
}

static void test_zigzag(void **state) {
    (void)state;
    const int64_t values[] = {0, -1, 1, -2, 2, INT64_MIN, INT64_MAX};
    assert_int_equal(zigzag(0), 0);
    assert_int_equal(zigzag(-1), 1);
    assert_int_equal(zigzag(1), 2);
    assert_int_equal(zigzag(-2), 3);
    assert_true(zigzag(INT64_MIN) == UINT64_MAX);
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++)
        assert_true(unzigzag(zigzag(values[i])) == values[i]);
}

static void test_differences_wrap(void **state) {
    (void)state;
    const uint64_t v[] = {0, 1, UINT64_MAX, 0x8000000000000000u, 12345};
    uint8_t buf[VARINT_MAX];
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < 5; j++) {
            uint64_t d = 0;
            uint8_t *end = varint_put_diff(buf, v[i], v[j]);
            assert_ptr_equal(varint_get(buf, end, &d), end);
            assert_true(v[j] + (uint64_t)unzigzag(d) == v[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_longer_than_needed), cmocka_unit_test(test_zigzag),
        cmocka_unit_test(test_differences_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
