/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

/* Sizes of the memory chunks for keys. They double from the first size to the other, because there may be a table for each of thousands of files. */
#define CHUNK_FIRST 128u
#define CHUNK       (64u << 10)

struct keys_chunk {
    struct keys_chunk *next;
    size_t used, cap;
    uint64_t data[];
};

/* Hashes eight bytes at a time by multiplying and folding: keys here are a few words long, and their number cannot be made hostile (they
 * come from dictionaries of bounded size). */
static inline uint32_t hash_of(const void *key, size_t n) {
    const uint8_t *p = key;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, w;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    w = 0;
    if (n)
        memcpy(&w, p, n);
    h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h ^ h >> 32);
}

void keys_init(struct keys *t) {
    memset(t, 0, sizeof *t);
}

void keys_free(struct keys *t) {
    for (struct keys_chunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(t->slots);
    free(t->entries);
    memset(t, 0, sizeof *t);
}

static inline size_t slot_of(const struct keys *t, uint32_t hash, const void *key, size_t n) {
    size_t i = hash & (t->nslots - 1);

    for (; t->slots[i].id; i = (i + 1) & (t->nslots - 1)) {
        const struct keys_entry *e = &t->entries[t->slots[i].id - 1];
        if (t->slots[i].hash == hash && e->len == n && memcmp(e->key, key, n) == 0)
            break;
    }
    return i;
}

static int grow(struct keys *t, size_t nslots) {
    struct keys_slot *slots = calloc(nslots, sizeof *slots);
    struct keys_entry *entries = realloc(t->entries, nslots / 4 * 3 * sizeof *entries);

    if (entries) {
        t->entries = entries;
        t->cap = (uint32_t)(nslots / 4 * 3);
    }
    if (!slots || !entries) {
        free(slots);
        return -1;
    }
    for (size_t k = 0; k < t->nslots; k++) {
        size_t i = t->slots[k].hash & (nslots - 1);
        if (!t->slots[k].id)
            continue;
        while (slots[i].id)
            i = (i + 1) & (nslots - 1);
        slots[i] = t->slots[k];
    }
    free(t->slots);
    t->slots = slots;
    t->nslots = nslots;
    return 0;
}

int keys_reserve(struct keys *t, size_t n) {
    size_t nslots = t->nslots ? t->nslots : 16;

    while (nslots / 4 * 3 < t->n + n && nslots < UINT32_MAX / 4)
        nslots *= 2;
    return nslots > t->nslots ? grow(t, nslots) : 0;
}

static void *copy(struct keys *t, const void *key, size_t n) {
    size_t size = (n + 7) & ~(size_t)7;
    struct keys_chunk *c = t->chunks;

    if (!c || c->cap - c->used < size) {
        size_t cap = !c ? CHUNK_FIRST : c->cap < CHUNK ? 2 * c->cap : CHUNK;
        cap = size > cap ? size : cap;
        c = malloc(sizeof *c + cap);
        if (!c)
            return NULL;
        *c = (struct keys_chunk){.next = t->chunks, .cap = cap};
        t->chunks = c;
    }
    void *p = (uint8_t *)c->data + c->used;
    if (n)
        memcpy(p, key, n);
    c->used += size;
    return p;
}

uint32_t keys_put(struct keys *t, const void *key, size_t n, int *is_new) {
    uint32_t hash = hash_of(key, n);
    void *p;

    if (is_new)
        *is_new = 0;
    if (n > UINT32_MAX || t->n == UINT32_MAX / 4)
        return 0;
    if (t->n == t->cap && grow(t, t->nslots ? t->nslots * 2 : 16) != 0)
        return 0;
    size_t i = slot_of(t, hash, key, n);
    if (t->slots[i].id)
        return t->slots[i].id;
    if (!(p = copy(t, key, n)))
        return 0;
    t->entries[t->n] = (struct keys_entry){.len = (uint32_t)n, .key = p};
    t->slots[i] = (struct keys_slot){++t->n, hash};
    if (is_new)
        *is_new = 1;
    return t->n;
}

uint32_t keys_find(const struct keys *t, const void *key, size_t n) {
    return t->n ? t->slots[slot_of(t, hash_of(key, n), key, n)].id : 0;
}

const void *keys_key(const struct keys *t, uint32_t id, size_t *n) {
    if (n)
        *n = t->entries[id - 1].len;
    return t->entries[id - 1].key;
}
