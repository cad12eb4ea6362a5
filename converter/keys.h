/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - gives equal keys the same small number: 1, 2, 3 ... A key is any string of bytes, for example a tuple of integers.
 *
 *     struct keys t;
 *     keys_init(&t);
 *     uint32_t id = keys_put(&t, key, n, &is_new);   // 0: no memory
 *     const void *key = keys_key(&t, id, &n);
 *     keys_free(&t);
 *
 * Keys are copied. The table uses open addressing, so that a look-up is a hash and, nearly always, one comparison. Not thread-safe.
 */
#ifndef PROBING_CONVERTER_KEYS_H
#define PROBING_CONVERTER_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct keys {
    struct keys_slot {
        uint32_t id, hash; /* id 0: free */
    } * slots;             /* an array of a power of two */
    size_t nslots;
    struct keys_entry {
        const void *key;
        uint32_t len;
    } * entries; /* entries[id - 1] */
    uint32_t n, cap;
    struct keys_chunk *chunks; /* the memory of the keys */
};

void keys_init(struct keys *t);
void keys_free(struct keys *t);
/* Makes space for n more keys, so that adding them moves none. Returns 0; -1: no memory. */
int keys_reserve(struct keys *t, size_t n);
/* Returns the id of the key, a new one if it is not in the table yet; 0: no memory (or four billion keys). */
uint32_t keys_put(struct keys *t, const void *key, size_t n, int *is_new);
/* Returns the id of the key, 0 if it is not in the table. */
uint32_t keys_find(const struct keys *t, const void *key, size_t n);
/* Returns the key of an id in 1..t->n, aligned for integers. */
const void *keys_key(const struct keys *t, uint32_t id, size_t *n);

#endif
