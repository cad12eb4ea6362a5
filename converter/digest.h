/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - a keyed 96-bit hash of a list of numbers, to recognize a list without storing it. Without knowing the seed nobody can
 * construct two lists with the same hash.
 *
 *     uint64_t seed[2];
 *     digest_seed(seed);                      // 0, or -EIO: no random numbers
 *     struct digest d = digest(seed, p, n);   // d.id is 0, for the caller to set
 */
#ifndef PROBING_CONVERTER_DIGEST_H
#define PROBING_CONVERTER_DIGEST_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

struct digest {
    uint64_t a;
    uint32_t b, id;
};

static inline int digest_seed(uint64_t seed[2]) {
    return getrandom(seed, 2 * sizeof *seed, 0) == 2 * sizeof *seed ? 0 : -EIO;
}

static inline struct digest digest(const uint64_t seed[2], const uint32_t *p, size_t n) {
    uint64_t a = seed[0] ^ n, b = seed[1];

    for (size_t i = 0; i < n; i++) {
        a = (a ^ p[i]) * 0xff51afd7ed558ccdu;
        a ^= a >> 32;
        b = (b + p[i]) * 0x9e3779b97f4a7c15u;
        b ^= b >> 29 ^ a;
    }
    b = (b ^ b >> 31) * 0xc4ceb9fe1a85ec53u;
    return (struct digest){.a = a, .b = (uint32_t)(b >> 32)};
}

#endif
