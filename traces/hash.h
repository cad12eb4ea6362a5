/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - FNV-1a: a hash of bytes that is the same on every machine and in every version, so that files may store it.
 *
 *     uint64_t h = hash_text(HASH_START, path);
 *     h = hash_bytes(h, &size, sizeof size);
 */
#ifndef PROBING_TRACES_HASH_H
#define PROBING_TRACES_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START 0xcbf29ce484222325u

/* One step of the hash. v is a byte, or a whole word where fewer steps are enough. */
static inline uint64_t hash_step(uint64_t h, uint64_t v) {
    return (h ^ v) * 0x100000001b3u;
}

static inline uint64_t hash_bytes(uint64_t h, const void *p, size_t n) {
    for (const uint8_t *b = p; n; n--)
        h = hash_step(h, *b++);
    return h;
}

static inline uint64_t hash_text(uint64_t h, const char *s) {
    return hash_bytes(h, s, strlen(s));
}

/* Mixes a hash so that its upper bits depend on all bytes; FNV-1a's upper bits depend little on the last ones. */
static inline uint64_t hash_spread(uint64_t h) {
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}

#endif
