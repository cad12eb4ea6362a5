/* SPDX-License-Identifier: Apache-2.0 */
/* tools/export/protobuf.h: bytes as in the published encoding, lengths of every size, and text that is not UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/export/protobuf.h"

#define IS(b, want)                                                                                \
    do {                                                                                           \
        assert_int_equal((b).err, 0);                                                              \
        assert_int_equal((b).n, sizeof(want) - 1);                                                 \
        assert_memory_equal((b).bytes, want, sizeof(want) - 1);                                    \
        (b).n = 0;                                                                                 \
    } while (0)

/* The examples of the page "Encoding" of protobuf.dev. */
static void test_published_examples(void **state) {
    (void)state;
    struct pb b = {0};
    pb_uint(&b, 1, 150);
    IS(b, "\x08\x96\x01");
    pb_text(&b, 2, "testing");
    IS(b, "\x12\x07testing");
    size_t inner = pb_begin(&b, 3);
    pb_uint(&b, 1, 150);
    pb_end(&b, inner);
    IS(b, "\x1a\x03\x08\x96\x01");
    pb_int(&b, 1, -2);
    IS(b, "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    inner = pb_begin(&b, 6);
    pb_packed(&b, 3);
    pb_packed(&b, 270);
    pb_packed(&b, 86942);
    pb_end(&b, inner);
    IS(b, "2\x06\x03\x8e\x02\x9e\xa7\x05");
    pb_fixed64(&b, 1, 0x0102030405060708);
    IS(b, "\x09\x08\x07\x06\x05\x04\x03\x02\x01");
    pb_double(&b, 1, 1.0);
    IS(b, "\x09\0\0\0\0\0\0\xf0\x3f");
    pb_uint(&b, 135, 0); /* a field number of two bytes */
    IS(b, "\xb8\x08\0");
    pb_free(&b);
}

static const uint8_t *length(const uint8_t *p, uint64_t *v) {
    int shift = 0;

    for (*v = 0; *p & 0x80; shift += 7)
        *v |= (uint64_t)(*p++ & 0x7f) << shift;
    *v |= (uint64_t)*p++ << shift;
    return p;
}

/* Nested messages, with every length at which the size of the length changes: each one has the right length. */
static void test_lengths(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 123, 124, 125, 126, 127, 128, 16379, 16383, 16384, 70000};
    struct pb b = {0};
    char *text = malloc(70001);

    memset(text, 'x', 70000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        text[sizes[i]] = 0;
        size_t outer = pb_begin(&b, 1), inner = pb_begin(&b, 2);
        pb_text(&b, 3, text);
        pb_end(&b, inner);
        pb_uint(&b, 4, 5);
        pb_end(&b, outer);
        assert_int_equal(b.err, 0);

        uint64_t n;
        const uint8_t *p = b.bytes, *end = b.bytes + b.n;
        assert_int_equal(*p, 1 << 3 | 2);
        p = length(p + 1, &n);
        assert_ptr_equal(p + n, end);
        assert_int_equal(*p, 2 << 3 | 2);
        p = length(p + 1, &n);
        assert_ptr_equal(p + n, end - 2);
        assert_memory_equal(end - 2, "\x20\x05", 2);
        assert_int_equal(*p, 3 << 3 | 2);
        p = length(p + 1, &n);
        assert_int_equal(n, sizes[i]);
        assert_memory_equal(p, text, n);
        text[sizes[i]] = 'x';
        b.n = 0;
    }
    free(text);
    pb_free(&b);
}

/* Parsers refuse a whole file because of one string that is not UTF-8; and viewers print strings to a terminal. */
static void test_hostile_text(void **state) {
    (void)state;
    struct pb b = {0};
    static const char *const bad[] = {
        "\xff",         "\xc0\x80",         "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xf0\x80\x80", "\xf4\x90\x80\x80", "\x1b",         "\xe2\x80\xae",
    };
    static const size_t signs[] = {1, 2, 3, 3, 3, 4, 1, 1};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[32], want[64] = "\x0a";
        snprintf(text, sizeof text, "a%s\xc3\xa9", bad[i]);
        want[1] = (char)(1 + 3 * signs[i] + 2);
        strcat(want, "a");
        for (size_t k = 0; k < signs[i]; k++)
            strcat(want, "\xef\xbf\xbd");
        strcat(want, "\xc3\xa9");
        pb_text(&b, 1, text);
        assert_int_equal(b.n, strlen(want));
        assert_memory_equal(b.bytes, want, b.n);
        b.n = 0;
    }
    pb_text(&b, 1, "cut \xe2\x80");
    IS(b, "\x0a\x0a"
          "cut \xef\xbf\xbd\xef\xbf\xbd");
    pb_text(&b, 1, NULL);
    IS(b, "\x0a\0");
    pb_free(&b);
}

static void test_strings(void **state) {
    (void)state;
    struct pb b = {0};
    struct pb_strings s;

    pb_strings_begin(&s, &b, 6);
    assert_int_equal(pb_string(&s, "a"), 1);
    assert_int_equal(pb_string(&s, "b"), 2);
    assert_int_equal(pb_string(&s, ""), 0);
    assert_int_equal(pb_string(&s, NULL), 0);
    assert_int_equal(pb_string(&s, "a"), 1);
    IS(b, "2\0"
          "2\1a"
          "2\1b");
    pb_strings_free(&s);
    pb_free(&b);
}

/* An error of the stream is reported by this call and by all later ones. */
static void test_error_stays(void **state) {
    (void)state;
    struct pb b = {0};
    FILE *full = fopen("/dev/full", "w");

    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    pb_uint(&b, 1, 1);
    assert_int_equal(pb_write(&b, full), -28); /* ENOSPC */
    pb_uint(&b, 1, 1);
    assert_int_equal(pb_write(&b, stdout), -28);
    fclose(full);
    pb_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_examples), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_hostile_text),       cmocka_unit_test(test_strings),
        cmocka_unit_test(test_error_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
