/* SPDX-License-Identifier: Apache-2.0 */
/* block.h and records.h: header and hint bytes, the record table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "traces/block.h"

/* Computes the CRC bit by bit, by its polynomial. */
static uint32_t plain_crc(const uint8_t *p, size_t n) {
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void test_crc(void **state) {
    uint8_t bytes[80];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 151 + 7);
    for (size_t n = 0; n < 70; n++) /* of every length, wherever it begins */
        for (size_t at = 0; at < 8; at++)
            assert_int_equal(trace_crc32(bytes + at, n), plain_crc(bytes + at, n));
    assert_int_equal(trace_crc32("123456789", 9), 0xcbf43926u); /* the check value of CRC-32 */
    assert_int_equal(trace_crc32("", 0), 0);
}

static void test_header(void **state) {
    (void)state;
    uint8_t buf[TRACE_BLOCK_HEADER + 300] = {0};
    struct trace_block_header g, h = {.kind = TRACE_KIND_DATA,
                                      .encoding = TRACE_ENCODING_ROWS,
                                      .epoch = 3,
                                      .seq = 0x01020304,
                                      .count = 5,
                                      .body_len = 300,
                                      .first_ts = 0x1122334455667788,
                                      .last_ts = 0x1122334455667799,
                                      .types = 1u << 16,
                                      .lost = {1, 2, 3, 4, 5, 6, 7, UINT64_MAX}};
    trace_block_header_put(buf, &h);
    /* Compares bytes, so that the format cannot change unnoticed. */
    assert_memory_equal(buf, "\x89PRB\r\n\x1a\n\x01\x00\x78\x00\x02\x01\x00\x00", 16);
    assert_memory_equal(buf + 16, "\x03\0\0\0\x04\x03\x02\x01\x05\0\0\0\x2c\x01\0\0", 16);
    assert_memory_equal(buf + 32, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
    assert_int_equal(trace_block_header_get(buf, sizeof buf, &g), 0);
    assert_int_equal(g.version, TRACE_VERSION);
    assert_int_equal(g.header_len, TRACE_BLOCK_HEADER);
    assert_int_equal(g.seq, h.seq);
    assert_true(g.first_ts == h.first_ts && g.last_ts == h.last_ts && g.types == h.types);
    assert_memory_equal(g.lost, h.lost, sizeof h.lost);

    assert_int_equal(trace_block_header_get(buf, sizeof buf - 1, &g), -EBADMSG);
    assert_int_equal(trace_block_header_get(buf, 119, &g), -EBADMSG);
    /* A newer writer with the same version may have a longer header. */
    buf[10] = 128;
    buf[28] = 36;
    assert_int_equal(trace_block_header_get(buf, 128 + 292, &g), 0);
    assert_int_equal(g.header_len, 128);
    buf[10] = 100;
    assert_int_equal(trace_block_header_get(buf, 100 + 292, &g), -EBADMSG);
    buf[10] = 120;
    buf[8] = TRACE_VERSION + 1;
    assert_int_equal(trace_block_header_get(buf, sizeof buf, &g), -EPROTONOSUPPORT);
    buf[8] = 0; /* no version at all: not a block */
    assert_int_equal(trace_block_header_get(buf, 120 + 292, &g), -EBADMSG);
    buf[8] = TRACE_VERSION;
    for (unsigned i = 0; i < 8; i++) {
        buf[i] ^= 1;
        assert_int_equal(trace_block_header_get(buf, 120 + 292, &g), -EBADMSG);
        buf[i] ^= 1;
    }
}

static void test_hint(void **state) {
    (void)state;
    uint8_t buf[TRACE_HINT_SIZE];
    struct trace_hint g, h = {.kind = 1,
                              .seq = 7,
                              .epoch = 2,
                              .count = 9,
                              .compressed = 1000,
                              .raw = 5000,
                              .first_ts = 10,
                              .last_ts = 20,
                              .types = 1ull << 63};
    trace_hint_put(buf, &h);
    assert_memory_equal(buf, "\x5d\x2a\x4d\x18\x3c\0\0\0PRBh\x01\0\x01\0", 16);
    assert_int_equal(trace_hint_get(buf, sizeof buf, &g), 0);
    assert_int_equal(g.kind, h.kind);
    assert_int_equal(g.seq, h.seq);
    assert_int_equal(g.epoch, h.epoch);
    assert_int_equal(g.count, h.count);
    assert_int_equal(g.compressed, h.compressed);
    assert_int_equal(g.raw, h.raw);
    assert_true(g.first_ts == h.first_ts && g.last_ts == h.last_ts && g.types == h.types);
    assert_int_equal(trace_hint_get(buf, sizeof buf - 1, &g), -EAGAIN);
    for (unsigned i = 0; i < sizeof buf; i++) { /* any flipped bit is noticed */
        buf[i] ^= 0x10;
        assert_int_equal(trace_hint_get(buf, sizeof buf, &g), -EBADMSG);
        buf[i] ^= 0x10;
    }
}

/* Checks the bytes that FORMAT.md gives to a number: n bytes at `at`, lowest first, and no other byte. */
static void expect(uint8_t *buf, size_t at, size_t n, uint64_t value) {
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf[at + i], value >> 8 * i & 255);
    memset(buf + at, 0, n);
}

static void test_bytes(void **state) {
    (void)state;
    uint8_t buf[TRACE_BLOCK_HEADER + 32], none[sizeof buf];
    uint64_t seed = 88172645463325252u;
    memset(none, 0, sizeof none);
    for (unsigned round = 0; round < 200; round++) {
        uint64_t v[16];
        for (unsigned i = 0; i < 16; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            v[i] = seed;
        }
        struct trace_block_header g, h = {.kind = (uint8_t)(1 + v[0] % 3),
                                          .epoch = (uint32_t)v[1],
                                          .seq = (uint32_t)v[2],
                                          .count = (uint32_t)v[3],
                                          .body_len = (uint32_t)v[4],
                                          .first_ts = v[5],
                                          .last_ts = v[6],
                                          .types = v[7]};
        for (unsigned i = 0; i < TRACE_NLOST; i++)
            h.lost[i] = v[8 + i % 8] + i;
        memset(buf, 0, sizeof buf);
        trace_block_header_put(buf + 8, &h);
        assert_memory_equal(buf + 8, TRACE_BLOCK_MAGIC, 8);
        memset(buf + 8, 0, 8);
        expect(buf, 8 + 8, 2, TRACE_VERSION);
        expect(buf, 8 + 10, 2, TRACE_BLOCK_HEADER);
        expect(buf, 8 + 12, 1, h.kind);
        expect(buf, 8 + 13, 1, h.encoding);
        expect(buf, 8 + 16, 4, h.epoch);
        expect(buf, 8 + 20, 4, h.seq);
        expect(buf, 8 + 24, 4, h.count);
        expect(buf, 8 + 28, 4, h.body_len);
        expect(buf, 8 + 32, 8, h.first_ts);
        expect(buf, 8 + 40, 8, h.last_ts);
        expect(buf, 8 + 48, 8, h.types);
        for (unsigned i = 0; i < TRACE_NLOST; i++)
            expect(buf, 8 + 56 + 8 * i, 8, h.lost[i]);
        assert_memory_equal(buf, none, sizeof buf);

        h.body_len = 0;
        trace_block_header_put(buf + 8, &h);
        assert_int_equal(trace_block_header_get(buf + 8, TRACE_BLOCK_HEADER, &g), 0);
        assert_true(g.first_ts == h.first_ts && g.last_ts == h.last_ts && g.types == h.types);
        assert_memory_equal(g.lost, h.lost, sizeof h.lost);
        memset(buf, 0, sizeof buf);

        trace_seek_head(buf + 8, v[0] % 1000);
        trace_seek_entry(buf + 16, (uint32_t)v[1], (uint32_t)v[2]);
        trace_seek_foot(buf + 24, v[3] % 1000);
        expect(buf, 8, 4, TRACE_SEEK_MAGIC);
        expect(buf, 12, 4, v[0] % 1000 * 8 + TRACE_SEEK_FOOT);
        expect(buf, 16, 4, (uint32_t)v[1]);
        expect(buf, 20, 4, (uint32_t)v[2]);
        expect(buf, 24, 4, v[3] % 1000);
        memset(buf + 24, 0, TRACE_SEEK_FOOT);
        assert_memory_equal(buf, none, sizeof buf);
    }
}

static void test_table(void **state) {
    (void)state;
    unsigned n = 0;
    assert_null(trace_record_by_id(0));
    assert_null(trace_record_by_id(64));
    assert_null(trace_record_by_name("nothing"));
    for (unsigned id = 1; id <= TRACE_MAX_ID; id++) {
        const struct trace_record *r = trace_record_by_id(id);
        if (!r)
            continue;
        n++;
        assert_int_equal(r->id, id);
        assert_ptr_equal(trace_record_by_name(r->name), r);
        assert_true(r->nfields >= 1 && r->doc[0]);
        for (unsigned i = 0; i < r->nfields; i++) {
            const struct trace_field *f = &r->fields[i];
            int is_ref = f->type == TRACE_REF || f->type == TRACE_REFS;
            assert_true(f->name[0] && f->doc[0]);
            assert_int_equal(is_ref, f->ref != 0);
            if (is_ref)
                assert_int_equal(trace_record_by_id(f->ref)->kind, TRACE_KIND_DICT);
            if (f->type == TRACE_ID)
                assert_true(r->kind == TRACE_KIND_DICT && i == 0);
        }
        if (r->kind == TRACE_KIND_DICT) { /* the writer's: its id, then its key */
            assert_int_equal(r->fields[0].type, TRACE_ID);
            assert_int_equal(r->fields[1].type, id == TRACE_string ? TRACE_TXT : TRACE_KEY);
        }
    }
    assert_true(n >= 17);
    assert_int_equal(trace_record_by_id(TRACE_sample)->fields[TRACE_sample_stack].ref, TRACE_stack);
    assert_non_null(strstr(trace_schema_text(),
                           "\n16 sample DATA ts:TUS tid:D stack:REF>stack pc:D "
                           "cpu_us:U count:U flags:U\n"));
    assert_string_equal(trace_lost_name(TRACE_LOST_unresolved), "unresolved");
    assert_true(trace_lost_doc(0)[0]);
    assert_string_equal(trace_lost_name(99), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),   cmocka_unit_test(test_header), cmocka_unit_test(test_hint),
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
