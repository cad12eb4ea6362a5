/* SPDX-License-Identifier: Apache-2.0 */
#include "intern.h"

#include <string.h>

void dicts_free(struct dicts *d) {
    for (unsigned i = 0; i <= TRACE_MAX_ID; i++)
        map_free(&d->map[i]);
    memset(d, 0, sizeof *d);
}

int dicts_define(struct dicts *d, unsigned type, uint64_t key, uint32_t id) {
    uint32_t had = d->map[type].n;
    int rc = map_put(&d->map[type], key, id);
    d->entries += d->map[type].n - had;
    return rc;
}

/* Multiplies 64 x 64 -> 128 bits, and folds the halves together. */
static uint64_t fold(uint64_t a, uint64_t b) {
    __uint128_t m = (__uint128_t)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

uint64_t string_key(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint64_t h = 0x51ed270b7f4a7c15u ^ n, w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = fold(h ^ w, 0x9fb21c651e98df25u) + 0x2545f4914f6cdd1du;
    }
    w = 0;
    if (n)
        memcpy(&w, p, n);
    h = fold(h ^ w, 0xd6e8feb86659fd93u);
    h = fold(h ^ (h >> 29), 0x9fb21c651e98df25u);
    return h ? h : 1;
}
