/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_reader.h - reads a whole trace file in a unit test: every block, its header and hint checked
 * against each other, every row handed to a callback.
 */
#ifndef PROBING_TESTS_TRACE_READER_H
#define PROBING_TESTS_TRACE_READER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "traces/block.h"

struct read_trace {
    unsigned blocks, seek_frames; /* seek_frames: 0 = no seek table at the end */
    uint64_t rows, by_type[TRACE_MAX_ID + 1];
    uint64_t lost[TRACE_NLOST];
    uint64_t bytes, raw, data_bytes; /* data_bytes: compressed size of DATA blocks, with hints */
    uint32_t max_epoch;
};

typedef void (*row_fn)(void *ctx, const struct trace_block_header *h, int type,
                       const struct trace_value *v);

static inline uint32_t le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint8_t *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static inline void read_block(struct read_trace *t, const struct trace_hint *hint,
                              const uint8_t *raw, row_fn fn, void *ctx) {
    struct trace_block_header h;
    static struct trace_rows rows;
    struct trace_value v[TRACE_MAX_FIELDS];
    uint32_t count = 0;
    uint64_t types = 0;
    int type;

    assert_int_equal(trace_block_header_get(raw, hint->raw, &h), 0);
    assert_int_equal(h.seq, hint->seq);
    assert_int_equal(h.seq, t->blocks);
    assert_int_equal(h.kind, hint->kind);
    assert_int_equal(h.epoch, hint->epoch);
    assert_int_equal(h.count, hint->count);
    assert_true(h.first_ts == hint->first_ts && h.last_ts == hint->last_ts);
    assert_true(h.types == hint->types);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        t->lost[i] += h.lost[i];
    if (h.epoch > t->max_epoch)
        t->max_epoch = h.epoch;
    trace_rows_start(&rows, &h, raw);
    while ((type = trace_rows_next(&rows, UINT64_MAX, v)) > 0) {
        count++;
        types |= 1ull << type;
        t->by_type[type]++;
        assert_int_equal(trace_record_by_id((unsigned)type)->kind, h.kind);
        if (fn)
            fn(ctx, &h, type, v);
    }
    assert_int_equal(type, 0);
    assert_int_equal(count, h.count);
    assert_true(types == h.types);
    t->rows += count;
    t->raw += hint->raw;
}

/* Fails the test when anything in the file is not as FORMAT.md has it. */
static inline struct read_trace read_trace(const char *path, row_fn fn, void *ctx) {
    struct read_trace t = {0};
    size_t n, pos = 0;
    uint8_t *p = slurp(path, &n);
    unsigned frames = 0;

    t.bytes = n;
    while (pos < n) {
        struct trace_hint hint;
        if (n - pos >= 17 && le32(p + pos) == 0x184D2A5E) {
            uint32_t size = le32(p + pos + 4);
            assert_int_equal(pos + 8 + size, n); /* last */
            assert_int_equal(le32(p + n - 4), 0x8F92EAB1);
            t.seek_frames = le32(p + n - 9);
            assert_int_equal(size, t.seek_frames * 8 + 9);
            assert_int_equal(t.seek_frames, frames);
            uint64_t sum = 0;
            for (unsigned i = 0; i < frames; i++)
                sum += le32(p + pos + 8 + 8 * i);
            assert_int_equal(sum, pos);
            break;
        }
        assert_int_equal(trace_hint_get(p + pos, n - pos, &hint), 0);
        pos += TRACE_HINT_SIZE;
        assert_true(hint.compressed <= n - pos);
        assert_true(ZSTD_getFrameContentSize(p + pos, hint.compressed) == hint.raw);
        uint8_t *raw = malloc(hint.raw);
        assert_non_null(raw);
        assert_int_equal(ZSTD_decompress(raw, hint.raw, p + pos, hint.compressed), hint.raw);
        read_block(&t, &hint, raw, fn, ctx);
        free(raw);
        pos += hint.compressed;
        if (hint.kind == TRACE_KIND_DATA)
            t.data_bytes += TRACE_HINT_SIZE + hint.compressed;
        t.blocks++;
        frames += 2;
    }
    free(p);
    return t;
}

#endif
