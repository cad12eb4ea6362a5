/* SPDX-License-Identifier: Apache-2.0 */
/* The row codec: the reader decodes what the writer encodes; unknown types, additional and missing fields, and broken bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "traces/block.h"
#include "traces/varint.h"
#include "writer/encode.h"

static struct trace_rows rows;

static void start(const uint8_t *block, size_t n, struct trace_block_header *h) {
    assert_int_equal(trace_block_header_get(block, n, h), 0);
    trace_rows_start(&rows, h, block);
}

/* A block made by hand, as a newer or older writer might have written it. */
static size_t by_hand(uint8_t *block, const uint8_t *body, size_t n, uint32_t count) {
    struct trace_block_header h = {.kind = TRACE_KIND_META,
                                   .encoding = TRACE_ENCODING_ROWS,
                                   .count = count,
                                   .body_len = (uint32_t)n,
                                   .first_ts = 1000};
    trace_block_header_put(block, &h);
    memcpy(block + TRACE_BLOCK_HEADER, body, n);
    return TRACE_BLOCK_HEADER + n;
}

static void test_unknown_type_and_trailing_field(void **state) {
    (void)state;
    const uint8_t body[] = {
        3,    6,    4,    100, 0x90,
        0x4e, 7,    0xaa,         /* clock: ts +2, 100, 10000, 7, one byte that we do not know */
        60,   3,    1,    2,   3, /* a type that we do not know */
        0xac, 0x02, 1,    9,      /* type 300: above any mask */
        3,    3,    6,    101, 5, /* clock of an older writer: no bracket */
        3,    1,    2,            /* still older: a time alone */
        5,    0,                  /* end without any field */
    };
    uint8_t block[400];
    struct trace_block_header h;
    struct trace_value v[TRACE_MAX_FIELDS];
    start(block, by_hand(block, body, sizeof body, 6), &h);

    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), TRACE_clock);
    assert_int_equal(v[TRACE_clock_ts].u, 1002);
    assert_int_equal(v[TRACE_clock_realtime].u, 100);
    assert_int_equal(v[TRACE_clock_boottime].u, 10000);
    assert_int_equal(v[TRACE_clock_bracket].u, 7);
    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), TRACE_clock);
    assert_int_equal(v[TRACE_clock_ts].u, 1005);
    assert_int_equal(v[TRACE_clock_boottime].u, 5);
    assert_int_equal(v[TRACE_clock_bracket].u, 0);
    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), TRACE_clock);
    assert_int_equal(v[TRACE_clock_ts].u, 1006);
    assert_int_equal(v[TRACE_clock_realtime].u, 0);
    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), TRACE_end);
    assert_int_equal(v[TRACE_end_ts].u, 0);
    assert_int_equal(v[TRACE_end_reason].n, 0);
    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), 0);

    /* Types that are not wanted are skipped. */
    trace_rows_start(&rows, &h, block);
    assert_int_equal(trace_rows_next(&rows, 1ull << TRACE_end, v), TRACE_end);
    assert_int_equal(trace_rows_next(&rows, 1ull << TRACE_end, v), 0);
}

static void expect_bad(const uint8_t *body, size_t n) {
    /* The block has its exact size, so that ASan sees a read beyond its end. */
    uint8_t *block = malloc(TRACE_BLOCK_HEADER + n);
    struct trace_block_header h;
    struct trace_value v[TRACE_MAX_FIELDS];
    int rc;
    assert_non_null(block);
    start(block, by_hand(block, body, n, 1), &h);
    while ((rc = trace_rows_next(&rows, UINT64_MAX, v)) > 0)
        ;
    assert_int_equal(rc, -EBADMSG);
    assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), 0); /* nothing more is tried */
    free(block);
}
#define BAD(...) expect_bad((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void test_broken_bytes(void **state) {
    (void)state;
    BAD(3);                                             /* no length */
    BAD(0x83);                                          /* the type is cut */
    BAD(3, 5, 1, 2, 3);                                 /* shorter than it says */
    BAD(3, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2);         /* far shorter */
    BAD(3, 2, 1, 0x80);                                 /* a varint runs over the end of the row */
    BAD(5, 3, 1, 9, 'x');                               /* a text longer than the row */
    BAD(9, 5, 2, 1, 2, 3, 4);                           /* a key that is cut */
    BAD(10, 13, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3, 1, 1); /* a list of three with two */
    BAD(10, 16, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1); /* of 4 billion */
}

/* ---- every record type with random values, there and back ---- */

struct row {
    const struct trace_record *rec;
    struct writer_value v[TRACE_MAX_FIELDS];
    uint8_t bytes[300];
    uint64_t list[40];
};

static uint64_t rnd(void) {
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s >> (s & 63);
}

static void fill(struct row *r, const struct trace_record *rec) {
    r->rec = rec;
    for (unsigned i = 0; i < sizeof r->bytes; i++)
        r->bytes[i] = (uint8_t)rnd();
    for (unsigned i = 0; i < 40; i++)
        r->list[i] = rnd();
    for (unsigned i = 0; i < rec->nfields; i++) {
        r->v[i] = (struct writer_value){.u = rnd()};
        switch (rec->fields[i].type) {
        case TRACE_TUS:
            r->v[i].u -= r->v[i].u % 1000;
            break;
        case TRACE_TXT:
        case TRACE_BIN:
            r->v[i].p = r->bytes;
            r->v[i].n = rnd() % sizeof r->bytes;
            break;
        case TRACE_REFS:
        case TRACE_US:
            r->v[i].p = r->list;
            r->v[i].n = rnd() % 40;
            break;
        default:
            break;
        }
    }
}

static void compare(const struct row *r, const struct trace_value *v) {
    for (unsigned i = 0; i < r->rec->nfields; i++) {
        enum trace_type type = r->rec->fields[i].type;
        if (type == TRACE_TXT || type == TRACE_BIN) {
            assert_int_equal(v[i].n, r->v[i].n);
            assert_memory_equal(v[i].p, r->v[i].p, v[i].n);
        } else if (type == TRACE_REFS || type == TRACE_US) {
            struct trace_value list = v[i];
            uint64_t prev = 0, x = 0;
            assert_int_equal(list.n, r->v[i].n);
            for (unsigned k = 0; k < r->v[i].n; k++) {
                assert_int_equal(trace_list_next(&list, &prev, &x), 1);
                assert_true(x == r->list[k]);
            }
            assert_int_equal(trace_list_next(&list, &prev, &x), 0);
        } else {
            assert_true(v[i].u == r->v[i].u);
        }
    }
}

static void test_round_trip(void **state) {
    (void)state;
    static struct row all[400];
    static struct builder b;
    const uint64_t lost[TRACE_NLOST] = {1, 2};
    builder_init(&b, TRACE_KIND_DATA);
    for (int round = 0; round < 20; round++) {
        struct trace_block_header h;
        struct trace_hint hint;
        struct trace_value v[TRACE_MAX_FIELDS];
        unsigned n = 0, id = 0;
        uint64_t earliest = UINT64_MAX, latest = 0, types = 0;
        while (n < 400) { /* each of all there are, then any */
            id = id < TRACE_MAX_ID ? id + 1 : TRACE_MAX_ID + 1 + (unsigned)(rnd() % TRACE_MAX_ID);
            const struct trace_record *rec =
                trace_record_by_id(id > TRACE_MAX_ID ? id - TRACE_MAX_ID : id);
            if (!rec)
                continue;
            fill(&all[n], rec);
            assert_int_equal(builder_row(&b, rec, all[n].v), 0);
            types |= 1ull << rec->id;
            for (unsigned i = 0; i < rec->nfields; i++)
                if (rec->fields[i].type == TRACE_T || rec->fields[i].type == TRACE_TUS) {
                    earliest = all[n].v[i].u < earliest ? all[n].v[i].u : earliest;
                    latest = all[n].v[i].u > latest ? all[n].v[i].u : latest;
                }
            n++;
        }
        size_t len = builder_finish(&b, 9, 4, lost, &hint);
        assert_int_equal(hint.raw, len);
        start(b.buf, len, &h);
        assert_int_equal(h.count, 400);
        assert_int_equal(h.seq, 9);
        assert_int_equal(h.epoch, 4);
        assert_int_equal(h.lost[1], 2);
        assert_true(h.first_ts == earliest && hint.first_ts == earliest);
        assert_true(h.last_ts == latest && hint.last_ts == latest);
        assert_true(h.types == types && hint.types == types);
        assert_int_equal(hint.count, 400);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), all[i].rec->id);
            compare(&all[i], v);
        }
        assert_int_equal(trace_rows_next(&rows, UINT64_MAX, v), 0);
        builder_reset(&b);
    }
    builder_free(&b);
}

/* The block's range of time, for rows in any order and with either type of time. */
static void test_range_of_time(void **state) {
    (void)state;
    static const uint64_t times[] = {500000, 900000, 100000, 700000};
    static struct builder b;
    for (unsigned type = 0; type < 2; type++) {
        const struct trace_record *rec = trace_record_by_id(type ? TRACE_sample : TRACE_thread);
        const uint64_t lost[TRACE_NLOST] = {0};
        struct writer_value v[TRACE_MAX_FIELDS] = {{.u = 0}};
        struct trace_hint hint;
        assert_int_equal(rec->fields[0].type, type ? TRACE_TUS : TRACE_T);
        builder_init(&b, TRACE_KIND_DATA);
        for (unsigned i = 0; i < 4; i++) {
            v[0].u = times[i] + (type ? 999 : 0); /* what is below a microsecond is not kept */
            assert_int_equal(builder_row(&b, rec, v), 0);
        }
        builder_finish(&b, 0, 0, lost, &hint);
        assert_int_equal(hint.first_ts, 100000);
        assert_int_equal(hint.last_ts, 900000);
        builder_free(&b);
    }
}

/* Bytes are cut off or flipped anywhere: an error or other values, never a read outside of the block (ASan), and never a hang. */
static void test_damage_is_survived(void **state) {
    (void)state;
    static struct builder b;
    static struct row r;
    const uint64_t lost[TRACE_NLOST] = {0};
    struct trace_hint hint;
    struct trace_value v[TRACE_MAX_FIELDS];
    builder_init(&b, TRACE_KIND_DATA);
    for (unsigned i = 0; i < 30; i++) {
        fill(&r, trace_record_by_id(
                     (const unsigned[]){TRACE_stack, TRACE_sample, TRACE_module}[i % 3]));
        assert_int_equal(builder_row(&b, r.rec, r.v), 0);
    }
    size_t len = builder_finish(&b, 0, 0, lost, &hint);
    for (unsigned i = 0; i < 3000; i++) {
        size_t cut = TRACE_BLOCK_HEADER + rnd() % (len - TRACE_BLOCK_HEADER);
        uint8_t *copy = malloc(cut);
        assert_non_null(copy);
        memcpy(copy, b.buf, cut);
        struct trace_block_header h = {.header_len = TRACE_BLOCK_HEADER,
                                       .body_len = (uint32_t)(cut - TRACE_BLOCK_HEADER)};
        if (i % 2 && h.body_len)
            copy[TRACE_BLOCK_HEADER + rnd() % h.body_len] ^= (uint8_t)(1u << (rnd() & 7));
        trace_rows_start(&rows, &h, copy);
        unsigned n = 0;
        while (trace_rows_next(&rows, UINT64_MAX, v) > 0)
            n++;
        assert_true(n <= cut);
        free(copy);
    }
    builder_free(&b);
}

/* Decoding many samples at a time gives the same as decoding them one by one, whatever the bytes are. */
static void compare_samples(const struct trace_block_header *h, const uint8_t *block) {
    static uint64_t got[TRACE_sample_NFIELDS][4096];
    const struct trace_samples to = {got[0], got[1], got[2], got[3], got[4], got[5], got[6]};
    struct trace_value v[TRACE_MAX_FIELDS];
    static struct trace_rows many;
    int damaged = 0, type = 0;
    size_t n = 0, k, total = 0;

    trace_rows_start(&rows, h, block);
    trace_rows_start(&many, h, block);
    do {
        n = trace_samples_next(&many, &to, 1 + total % 700, &damaged);
        for (k = 0; k < n; k++) {
            assert_int_equal(type = trace_rows_next(&rows, 1ull << TRACE_sample, v), TRACE_sample);
            for (unsigned f = 0; f < TRACE_sample_NFIELDS; f++)
                assert_int_equal(got[f][k], v[f].u);
        }
        total += n;
    } while (n);
    type = trace_rows_next(&rows, 1ull << TRACE_sample, v);
    assert_int_equal(type, damaged ? -EBADMSG : 0);
}

static void test_samples_many_at_a_time(void **state) {
    (void)state;
    uint8_t *body = malloc(400000);
    uint64_t seed = 7;
    size_t len = 0;

    assert_non_null(body);
    for (unsigned i = 0; i < 9000;
         i++) { /* values of every length, rows of every number of fields, other types between */
        uint8_t row[200], *p = row;
        unsigned fields = i % 50 ? TRACE_sample_NFIELDS : i / 50 % 9;
        for (unsigned f = 0; f < fields; f++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            p = varint_put(p, seed >> (seed >> 58 & 63));
        }
        uint8_t *at = varint_put(body + len, i % 13 ? TRACE_sample : i % 26 ? 60 : 300);
        at = varint_put(at, (uint64_t)(p - row));
        memcpy(at, row, (size_t)(p - row));
        len = (size_t)(at - body) + (size_t)(p - row);
        assert_true(len < 400000 - 300);
    }
    for (unsigned i = 0; i < 400; i++) { /* of exact size, so that ASan sees a read past the end */
        size_t n = i ? (len * i / 400 + i) % len : len;
        uint8_t *block = malloc(TRACE_BLOCK_HEADER + n);
        struct trace_block_header h;
        assert_non_null(block);
        by_hand(block, body, n, 0);
        if (i % 3 == 2)
            for (unsigned k = 0; k < 8; k++) {
                seed = seed * 6364136223846793005u + 1;
                block[TRACE_BLOCK_HEADER + (seed >> 16) % n] ^= (uint8_t)(1u << (seed >> 60 & 7));
            }
        assert_int_equal(trace_block_header_get(block, TRACE_BLOCK_HEADER + n, &h), 0);
        compare_samples(&h, block);
        free(block);
    }
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_many_at_a_time),
        cmocka_unit_test(test_unknown_type_and_trailing_field),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_range_of_time),
        cmocka_unit_test(test_damage_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
