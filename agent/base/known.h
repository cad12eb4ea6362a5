/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - a lock-free table of 64-bit keys: "this frame (or stack) is in the trace already".
 *
 *     uint64_t keys[N];                               // all zeros at first; N: a power of two
 *     if (!known_has(keys, N, key)) { write the definition, commit it; known_add(keys, N, key); }
 *
 * Two places for a key, the older goes: a forgotten key is merely defined once more. Keys are good
 * hashes and not 0. Any thread, any signal context; nothing is allocated.
 */
#ifndef PROBING_AGENT_KNOWN_H
#define PROBING_AGENT_KNOWN_H

#include "writer/sys.h"

static inline int known_has(const uint64_t *keys, uint32_t n, uint64_t key) {
    uint64_t i = key & (n - 1);
    return __atomic_load_n(&keys[i], __ATOMIC_ACQUIRE) == key ||
           __atomic_load_n(&keys[i ^ 1], __ATOMIC_ACQUIRE) == key;
}

/* Call it after the definition is committed: release order. */
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
    /* The product alone forgets h when v's factor is 0: keep a way through for both. */
    return r + ((h << 23) | (h >> 41)) + v * 0xff51afd7ed558ccdu;
}

/* A text's bytes, one step each. */
static inline uint64_t known_text(uint64_t h, const char *s) {
    for (; *s; s++)
        h = known_mix(h, (uint8_t)*s);
    return h;
}

#endif
