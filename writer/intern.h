/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern.h - the dictionaries of one epoch: they map 64-bit keys to small ids.
 *
 *     struct dicts d = {.epoch = epoch};
 *     id = dicts_find(&d, TRACE_stack, key);              // 0: not defined
 *     rc = dicts_define(&d, TRACE_stack, key, d.map[TRACE_stack].n + 1);  // ids: 1, 2, ... per record type
 *     dicts_free(&d);
 *
 * Strings are keyed by string_key(), a 64-bit hash of their bytes: with 100,000 distinct strings the chance that any two collide is 3 in 10^10. Key 0 and the
 * empty string mean "none", id 0. DICTS_BOUND keeps all maps together within 4 MiB, whichever way they fill up. One thread at a time. Memory by malloc.
 */
#ifndef PROBING_WRITER_INTERN_H
#define PROBING_WRITER_INTERN_H

#include "../traces/map.h"
#include "../traces/records.h"

#define DICTS_BOUND 98304 /* most entries of all dictionaries of an epoch together */

struct dicts {
    uint32_t epoch;
    uint32_t entries;                 /* in all maps */
    struct map map[TRACE_MAX_ID + 1]; /* by record id; a map without entries owns no memory */
};

/* Frees all dictionaries and leaves empty ones of epoch 0. */
void dicts_free(struct dicts *d);
/* Returns the id of `key`, or 0. */
static inline uint32_t dicts_find(const struct dicts *d, unsigned type, uint64_t key) {
    return map_find(&d->map[type], key);
}
/* Gives `key` this id: the next free one, or the one that was read back from a trace. Returns 0 or -ENOMEM. */
int dicts_define(struct dicts *d, unsigned type, uint64_t key, uint32_t id);

/* Returns a hash of n bytes, never 0. */
uint64_t string_key(const void *bytes, size_t n);

#endif
