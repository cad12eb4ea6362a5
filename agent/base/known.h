/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - a lock-free table of 64-bit keys: "this frame (or stack) is in the trace already".
 *
 *     if (!known_has(&k, key)) { write the definition, commit it; known_add(&k, key); }
 *
 * Two places for a key, the older goes: a forgotten key is merely defined once more. Keys are good
 * hashes and not 0. Any thread, any signal context; nothing is allocated after known_init().
 */
#ifndef PROBING_AGENT_KNOWN_H
#define PROBING_AGENT_KNOWN_H

#include "writer/sys.h"

struct known {
    uint64_t *keys;
    uint32_t mask;
};

/* n: a power of two. 0 or -ENOMEM. */
static inline int known_init(struct known *k, uint32_t n) {
    k->keys = sys_pages(n * sizeof *k->keys);
    if (!k->keys)
        return -ENOMEM;
    k->mask = n - 1;
    return 0;
}

static inline void known_free(struct known *k) {
    sys_pages_free(k->keys, (k->mask + 1) * sizeof *k->keys);
    k->keys = NULL;
}

static inline int known_has(const struct known *k, uint64_t key) {
    uint64_t *a = &k->keys[key & k->mask];
    uint64_t *b = &k->keys[(key & k->mask) ^ 1];
    return __atomic_load_n(a, __ATOMIC_ACQUIRE) == key ||
           __atomic_load_n(b, __ATOMIC_ACQUIRE) == key;
}

/* Call it after the definition is committed: release order. */
static inline void known_add(struct known *k, uint64_t key) {
    uint64_t *a = &k->keys[key & k->mask];
    uint64_t *b = &k->keys[(key & k->mask) ^ 1];
    uint64_t old = __atomic_load_n(a, __ATOMIC_RELAXED);
    if (old)
        __atomic_store_n(b, old, __ATOMIC_RELEASE);
    __atomic_store_n(a, key, __ATOMIC_RELEASE);
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
