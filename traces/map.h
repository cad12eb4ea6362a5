/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - maps 64-bit keys to numbers other than 0: open addressing, linear probing, at most 3/4 full, memory by malloc.
 *
 *     struct map m = {0};
 *     if (!map_put(&m, key, 7)) ... map_find(&m, key) == 7
 *     map_free(&m);
 *
 * Key 0 is never in a map. Keys should be hashes, but a multiplication spreads poor ones. One thread at a time.
 */
#ifndef PROBING_TRACES_MAP_H
#define PROBING_TRACES_MAP_H

#include <stdint.h>

struct map {
    uint64_t *keys;
    uint32_t *numbers;
    uint32_t n, cap; /* cap: 0 or a power of two */
};

/* Sets the number of the key, which may have one already. Returns 0 or -ENOMEM. */
int map_put(struct map *m, uint64_t key, uint32_t number);
/* Empties the map and frees its memory. */
void map_free(struct map *m);

/* Returns the index of the key, or of the free place where it would go. cap must not be 0. */
static inline uint32_t map_place(const struct map *m, uint64_t key) {
    uint32_t mask = m->cap - 1, i = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
    while (m->keys[i] && m->keys[i] != key)
        i = (i + 1) & mask;
    return i;
}

/* Returns the key's number, or 0. */
static inline uint32_t map_find(const struct map *m, uint64_t key) {
    if (m->n == 0 || key == 0)
        return 0;
    uint32_t i = map_place(m, key);
    return m->keys[i] ? m->numbers[i] : 0;
}

#endif
