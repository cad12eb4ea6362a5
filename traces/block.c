/* SPDX-License-Identifier: Apache-2.0 */
#include "block.h"

#include <errno.h>
#include <string.h>

/* Byte by byte, so that layout and byte order are those of the format and not of the machine;
 * compilers make single loads and stores of it. */
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
    p[4] = 0; /* entries have no checksums: every frame has its own */
    put(p + 5, 0x8F92EAB1u, 4);
}

/* Half a byte at a time: hints are 56 bytes, a table of 16 words is all that they deserve. */
uint32_t trace_crc32(const void *p, size_t n) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *b = p;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc = table[(crc ^ b[i]) & 15] ^ (crc >> 4);
        crc = table[(crc ^ (b[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}
