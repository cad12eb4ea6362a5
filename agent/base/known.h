/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - a lock-free table of 64-bit keys: "this frame (or stack) is in the trace already".
 *
 *     uint64_t keys[N];                               // all zeros at first; N: a power of two
 *     if (!known_has(keys, N, key)) { write the definition, commit it; known_add(keys, N, key); }
 *
 * Each key has two possible slots; a new key evicts the older of the two. A key that was evicted is merely defined once more. Keys must be
 * good hashes and not 0. Callable from any thread and any signal handler; nothing is allocated.
 */
#ifndef PROBING_AGENT_KNOWN_H
#define PROBING_AGENT_KNOWN_H

#include "writer/sys.h"

static inline int known_has(const uint64_t *keys, uint32_t n, uint64_t key) {
    uint64_t i = key & (n - 1);
    return __atomic_load_n(&keys[i], __ATOMIC_ACQUIRE) == key ||
           __atomic_load_n(&keys[i ^ 1], __ATOMIC_ACQUIRE) == key;
}

/* Call this after the definition is committed; the stores have release order. */
static inline void known_add(uint64_t *keys, uint32_t n, uint64_t key) {
    uint64_t i = key & (n - 1), old = __atomic_load_n(&keys[i], __ATOMIC_RELAXED);
    if (old)
        __atomic_store_n(&keys[i ^ 1], old, __ATOMIC_RELEASE);
    __atomic_store_n(&keys[i], key, __ATOMIC_RELEASE);
}

/* One step of a 64-bit hash: h' depends on all bits of h and v. */
static inline uint64_t known_mix(uint64_t h, uint64_t v) {
    unsigned __int128 m = (unsigned __int128)(h ^ 0x9e3779b97f4a7c15u) * (v ^ 0xd1b54a32d192ed03u);
    uint64_t r = (uint64_t)m ^ (uint64_t)(m >> 64);
    /* When one factor is 0, the product does not depend on the other: so h and v are also added. */
    return r + ((h << 23) | (h >> 41)) + v * 0xff51afd7ed558ccdu;
}

/* Mixes the bytes of a string into h, one step for each byte. */
static inline uint64_t known_text(uint64_t h, const char *s) {
    for (; *s; s++)
        h = known_mix(h, (uint8_t)*s);
    return h;
}

#endif
