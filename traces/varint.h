/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varint.h - LEB128 varints and zigzag, as used in trace blocks.
 *
 * Little-endian base 128: 7 bits a byte, low bits first, high bit set on all but the last byte;
 * at most 10 bytes. Signed values go through zigzag: 0, -1, 1, -2 ... become 0, 1, 2, 3 ...
 * Pure functions: any thread, any signal context.
 */
#ifndef PROBING_TRACES_VARINT_H
#define PROBING_TRACES_VARINT_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VARINT_MAX 10

static inline uint64_t zigzag(int64_t v) {
    return ((uint64_t)v << 1) ^ -(uint64_t)(v < 0);
}

static inline int64_t unzigzag(uint64_t v) {
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* Writes v at p (space for VARINT_MAX bytes); returns the first byte after it. */
static inline uint8_t *varint_put(uint8_t *p, uint64_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Writes the zigzag difference of two unsigned values; it wraps, so any pair can be coded. */
static inline uint8_t *varint_put_diff(uint8_t *p, uint64_t v, uint64_t prev) {
    return varint_put(p, zigzag((int64_t)(v - prev)));
}

/* Reads a varint from [p, end) into *v; returns the first byte after it, or NULL when the bytes
 * end inside it or it is longer than 10 bytes. */
static inline const uint8_t *varint_get(const uint8_t *p, const uint8_t *end, uint64_t *v) {
    uint64_t r = 0;
    if (p < end && !(*p & 0x80)) { /* nearly always a single byte */
        *v = *p;
        return p + 1;
    }
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p >= end)
            return NULL;
        uint8_t b = *p++;
        r |= (uint64_t)(b & 0x7f) << (shift & 63);
        if (!(b & 0x80)) {
            *v = r;
            return p;
        }
    }
    return NULL;
}

/* Reads a varint as varint_get() does, where VARINT_MAX bytes are readable at p. It needs no branch per byte (the length of varints is hard
 * to predict). The caller checks that the returned pointer is still within the row. */
static inline const uint8_t *varint_get_wide(const uint8_t *p, uint64_t *v) {
    uint64_t w = 0, stop;

    if (!(*p & 0x80)) {
        *v = *p;
        return p + 1;
    }
    memcpy(&w, p, 8);
    w = le64toh(w);
    stop = ~w & 0x8080808080808080u; /* the last byte of a varint has its high bit clear */
    if (!stop)
        return varint_get(p, p + VARINT_MAX, v);
    w &= (stop ^ (stop - 1)) & 0x7f7f7f7f7f7f7f7fu;
    w = (w & 0x007f007f007f007fu) | (w & 0x7f007f007f007f00u) >> 1;
    w = (w & 0x00003fff00003fffu) | (w & 0x3fff00003fff0000u) >> 2;
    *v = (w & 0x000000000fffffffu) | (w & 0x0fffffff00000000u) >> 4;
    return p + (__builtin_ctzll(stop) / 8 + 1);
}

#endif
