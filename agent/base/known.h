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

#include <stdint.h>

struct known {
    uint64_t *keys;
    uint32_t mask;
};

/* n: a power of two. 0 or -ENOMEM. */
int known_init(struct known *k, uint32_t n);
void known_free(struct known *k);
int known_has(const struct known *k, uint64_t key);
/* Call it after the definition is committed: release order. */
void known_add(struct known *k, uint64_t key);

/* One step of a 64-bit hash: h' depends on all bits of h and v. */
static inline uint64_t known_mix(uint64_t h, uint64_t v) {
    unsigned __int128 m = (unsigned __int128)(h ^ 0x9e3779b97f4a7c15u) * (v ^ 0xd1b54a32d192ed03u);
    uint64_t r = (uint64_t)m ^ (uint64_t)(m >> 64);
    /* The product alone forgets h when v's factor is 0: keep a way through for both. */
    return r + ((h << 23) | (h >> 41)) + v * 0xff51afd7ed558ccdu;
}

#endif
