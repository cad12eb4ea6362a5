/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row.h - how the numbers of a row are written; FORMAT.md says it in words. For the two ways of encode.c: the one that takes any
 * record, and the one that is quick for those of numbers alone.
 *
 *     row[0] = TRACE_sample;
 *     p = put_TUS(row + ROW_HEAD, ts, &prev_ts, &span);
 *     p = put_D(p, tid, &prev_tid, &span);  ...
 *     p = row_close(row, p);
 *
 * put_<type>(p, value, prev, span) writes a field of that type (of a REF or an ID: the id) and returns the first byte
 * after it. *prev is the type's and field's previous value (of TUS in us), span the block's earliest and latest time. Each
 * needs VARINT_MAX bytes of space. Pure but for what they are given.
 */
#ifndef PROBING_WRITER_ROW_H
#define PROBING_WRITER_ROW_H

#include <string.h>

#include "../traces/records.h"
#include "../traces/varint.h"

#define ROW_HEAD  2 /* bytes of type and length, when the length is below 128: nearly always */
#define ROW_MAX   ((2 + TRACE_MAX_FIELDS) * VARINT_MAX) /* the most bytes of a row of numbers */
#define TIME_SLOT (TRACE_MAX_FIELDS - 1) /* among the previous values: that of a type's times */

struct span {
    uint64_t first, last;
};

#define PUT(type)                                                                                  \
    static inline __attribute__((always_inline))                                                   \
    uint8_t *put_##type(uint8_t *p, uint64_t u, uint64_t *prev, struct span *span)

PUT(U) {
    (void)prev, (void)span;
    return varint_put(p, u);
}

PUT(S) {
    (void)prev, (void)span;
    return varint_put(p, zigzag((int64_t)u));
}

PUT(D) {
    (void)span;
    p = varint_put_diff(p, u, *prev);
    *prev = u;
    return p;
}

PUT(F) {
    (void)prev, (void)span;
    for (unsigned i = 0; i < 8; i++)
        *p++ = (uint8_t)(u >> (8 * i));
    return p;
}

PUT(T) {
    if (u < span->first)
        span->first = u;
    if (u > span->last)
        span->last = u;
    return put_D(p, u, prev, span);
}

PUT(TUS) {
    uint64_t us = u / 1000;
    u = us * 1000;
    if (u < span->first)
        span->first = u;
    if (u > span->last)
        span->last = u;
    return put_D(p, us, prev, span);
}
#undef PUT

#define put_ID  put_D
#define put_REF put_D
#define put_KEY put_F

/* The fields lie at row + ROW_HEAD ... p: puts their length in front. Returns the row's end. */
static inline uint8_t *row_close(uint8_t *row, uint8_t *p) {
    uint8_t *start = row + ROW_HEAD;
    size_t n = (size_t)(p - start);
    row[1] = (uint8_t)n;
    if (__builtin_expect(n > 0x7f, 0)) {
        uint8_t len[VARINT_MAX];
        size_t nlen = (size_t)(varint_put(len, n) - len);
        memmove(row + 1 + nlen, start, n);
        memcpy(row + 1, len, nlen);
        p += nlen - 1;
    }
    return p;
}

#endif
