/* SPDX-License-Identifier: Apache-2.0 */
#include "block.h"

#include <errno.h>
#include <string.h>

/* Byte by byte, so that the result has the format's layout and byte order on any machine; compilers
 * turn this into single loads and stores. */
static void put(uint8_t *p, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

void trace_block_header_put(uint8_t *p, const struct trace_block_header *h) {
    memset(p, 0, TRACE_BLOCK_HEADER);
    memcpy(p, TRACE_BLOCK_MAGIC, 8);
    put(p + 8, TRACE_VERSION, 2);
    put(p + 10, TRACE_BLOCK_HEADER, 2);
    put(p + 12, h->kind, 1);
    put(p + 13, h->encoding, 1);
    put(p + 16, h->epoch, 4);
    put(p + 20, h->seq, 4);
    put(p + 24, h->count, 4);
    put(p + 28, h->body_len, 4);
    put(p + 32, h->first_ts, 8);
    put(p + 40, h->last_ts, 8);
    put(p + 48, h->types, 8);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        put(p + 56 + 8 * i, h->lost[i], 8);
}

int trace_block_header_get(const uint8_t *p, size_t n, struct trace_block_header *h) {
    if (n < TRACE_BLOCK_HEADER || memcmp(p, TRACE_BLOCK_MAGIC, 8) != 0)
        return -EBADMSG;
    h->version = (uint16_t)get(p + 8, 2);
    if (h->version > TRACE_VERSION)
        return -EPROTONOSUPPORT;
    h->header_len = (uint16_t)get(p + 10, 2);
    h->kind = (uint8_t)get(p + 12, 1);
    h->encoding = (uint8_t)get(p + 13, 1);
    h->epoch = (uint32_t)get(p + 16, 4);
    h->seq = (uint32_t)get(p + 20, 4);
    h->count = (uint32_t)get(p + 24, 4);
    h->body_len = (uint32_t)get(p + 28, 4);
    h->first_ts = get(p + 32, 8);
    h->last_ts = get(p + 40, 8);
    h->types = get(p + 48, 8);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        h->lost[i] = get(p + 56 + 8 * i, 8);
    if (h->version == 0 || h->header_len < TRACE_BLOCK_HEADER ||
        (uint64_t)h->header_len + h->body_len != n)
        return -EBADMSG;
    return 0;
}

#define HINT_TAG 0x68425250u /* "PRBh" */

void trace_hint_put(uint8_t *p, const struct trace_hint *h) {
    memset(p, 0, TRACE_HINT_SIZE);
    put(p, TRACE_HINT_MAGIC, 4);
    put(p + 4, TRACE_HINT_SIZE - 8, 4);
    put(p + 8, HINT_TAG, 4);
    put(p + 12, TRACE_VERSION, 2);
    put(p + 14, h->kind, 1);
    put(p + 16, h->seq, 4);
    put(p + 20, h->epoch, 4);
    put(p + 24, h->count, 4);
    put(p + 28, h->compressed, 4);
    put(p + 32, h->raw, 4);
    put(p + 40, h->first_ts, 8);
    put(p + 48, h->last_ts, 8);
    put(p + 56, h->types, 8);
    put(p + 64, trace_crc32(p + 8, 56), 4);
}

int trace_hint_get(const uint8_t *p, size_t n, struct trace_hint *h) {
    if (n < TRACE_HINT_SIZE)
        return -EAGAIN;
    if (get(p, 4) != TRACE_HINT_MAGIC || get(p + 4, 4) != TRACE_HINT_SIZE - 8 ||
        get(p + 8, 4) != HINT_TAG || get(p + 64, 4) != trace_crc32(p + 8, 56))
        return -EBADMSG;
    h->kind = (uint8_t)get(p + 14, 1);
    h->seq = (uint32_t)get(p + 16, 4);
    h->epoch = (uint32_t)get(p + 20, 4);
    h->count = (uint32_t)get(p + 24, 4);
    h->compressed = (uint32_t)get(p + 28, 4);
    h->raw = (uint32_t)get(p + 32, 4);
    h->first_ts = get(p + 40, 8);
    h->last_ts = get(p + 48, 8);
    h->types = get(p + 56, 8);
    return 0;
}

void trace_seek_head(uint8_t *p, uint64_t frames) {
    put(p, TRACE_SEEK_MAGIC, 4);
    put(p + 4, frames * 8 + TRACE_SEEK_FOOT, 4);
}

void trace_seek_entry(uint8_t *p, uint32_t compressed, uint32_t raw) {
    put(p, compressed, 4);
    put(p + 4, raw, 4);
}

void trace_seek_foot(uint8_t *p, uint64_t frames) {
    put(p, frames, 4);
    p[4] = 0; /* entries have no checksums, since every frame has its own */
    put(p + 5, 0x8F92EAB1u, 4);
}

/*
 * Takes four bytes per step. Each half byte has a table of its own, with its remainder after the half bytes that follow it in the step, so
 * that the look-ups of one step do not depend on each other. Speed matters: opening a large trace checks thousands of hints of 56 bytes.
 */
uint32_t trace_crc32(const void *p, size_t n) {
    static const uint32_t table[8][16] = {
        {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158,
         0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4,
         0xa00ae278, 0xbdbdf21c},
        {0x00000000, 0x77073096, 0xee0e612c, 0x990951ba, 0x076dc419, 0x706af48f, 0xe963a535,
         0x9e6495a3, 0x0edb8832, 0x79dcb8a4, 0xe0d5e91e, 0x97d2d988, 0x09b64c2b, 0x7eb17cbd,
         0xe7b82d07, 0x90bf1d91},
        {0x00000000, 0x4ac21251, 0x958424a2, 0xdf4636f3, 0xf0794f05, 0xbabb5d54, 0x65fd6ba7,
         0x2f3f79f6, 0x3b83984b, 0x71418a1a, 0xae07bce9, 0xe4c5aeb8, 0xcbfad74e, 0x8138c51f,
         0x5e7ef3ec, 0x14bce1bd},
        {0x00000000, 0x191b3141, 0x32366282, 0x2b2d53c3, 0x646cc504, 0x7d77f445, 0x565aa786,
         0x4f4196c7, 0xc8d98a08, 0xd1c2bb49, 0xfaefe88a, 0xe3f4d9cb, 0xacb54f0c, 0xb5ae7e4d,
         0x9e832d8e, 0x87981ccf},
        {0x00000000, 0x1c26a370, 0x384d46e0, 0x246be590, 0x709a8dc0, 0x6cbc2eb0, 0x48d7cb20,
         0x54f16850, 0xe1351b80, 0xfd13b8f0, 0xd9785d60, 0xc55efe10, 0x91af9640, 0x8d893530,
         0xa9e2d0a0, 0xb5c473d0},
        {0x00000000, 0x01c26a37, 0x0384d46e, 0x0246be59, 0x0709a8dc, 0x06cbc2eb, 0x048d7cb2,
         0x054f1685, 0x0e1351b8, 0x0fd13b8f, 0x0d9785d6, 0x0c55efe1, 0x091af964, 0x08d89353,
         0x0a9e2d0a, 0x0b5c473d},
        {0x00000000, 0x5019579f, 0xa032af3e, 0xf02bf8a1, 0x9b14583d, 0xcb0d0fa2, 0x3b26f703,
         0x6b3fa09c, 0xed59b63b, 0xbd40e1a4, 0x4d6b1905, 0x1d724e9a, 0x764dee06, 0x2654b999,
         0xd67f4138, 0x866616a7},
        {0x00000000, 0xb8bc6765, 0xaa09c88b, 0x12b5afee, 0x8f629757, 0x37def032, 0x256b5fdc,
         0x9dd738b9, 0xc5b428ef, 0x7d084f8a, 0x6fbde064, 0xd7018701, 0x4ad6bfb8, 0xf26ad8dd,
         0xe0df7733, 0x58631056},
    };
    const uint8_t *b = p;
    uint32_t crc = ~0u;
    for (; n >= 4; n -= 4, b += 4) {
        crc ^= (uint32_t)get(b, 4);
        crc = table[7][crc & 15] ^ table[6][crc >> 4 & 15] ^ table[5][crc >> 8 & 15] ^
              table[4][crc >> 12 & 15] ^ table[3][crc >> 16 & 15] ^ table[2][crc >> 20 & 15] ^
              table[1][crc >> 24 & 15] ^ table[0][crc >> 28];
    }
    for (size_t i = 0; i < n; i++) {
        crc = table[0][(crc ^ b[i]) & 15] ^ (crc >> 4);
        crc = table[0][(crc ^ (b[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}
