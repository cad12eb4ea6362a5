/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dictionaries, in every layout: combined ones, whose entries hold the values (24 bytes with the hash, or 16 when all keys
 * are str, 3.11+); split ones, whose keys are shared by the instances of a class; and values without a dictionary.
 *
 * The values of a split dictionary are in the order of the keys up to 3.10. From 3.11 on bytes beside the values keep the order in
 * which they were inserted: up to 3.12 before the values and backwards, from 3.13 on behind them.
 */
#include "object_render.h"

#define MAX_FIND 20000 /* enough for sys.modules of a large program */

/* Opens the entries, which lie behind the hash table's indices. */
static bool keys_open(struct render *r, uint64_t keys, struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint8_t head[64];
    uint64_t slots, index_bytes;

    memset(it, 0, sizeof *it);
    if (!obj_ok(r, pywalk_plausible(keys) && f->keys_indices <= (int64_t)sizeof head) ||
        !obj_get(r, keys, head, f->keys_indices))
        return false;
    it->count = load64(head + f->keys_entries);
    it->size = f->entry_general;
    it->at_key = f->entry_general_key;
    it->at_value = f->entry_general_value;
    if (f->keys_kind != 0) {
        unsigned log2 = head[f->keys_log2], log2_bytes = head[f->keys_log2_bytes];
        if (!obj_ok(r, log2 <= 40 && log2_bytes <= 43 && log2_bytes >= log2 &&
                           head[f->keys_kind] <= 2))
            return false;
        slots = 1ull << log2;
        index_bytes = 1ull << log2_bytes;
        if (head[f->keys_kind] != f->keys_general) {
            it->size = f->entry_unicode;
            it->at_key = f->entry_unicode_key;
            it->at_value = f->entry_unicode_value;
        }
    } else {
        slots = load64(head + f->keys_log2);
        if (!obj_ok(r, slots != 0 && slots <= 1ull << 40 && (slots & (slots - 1)) == 0))
            return false;
        index_bytes = slots * (slots <= 0xff         ? 1
                               : slots <= 0xffff     ? 2
                               : slots <= UINT32_MAX ? 4
                                                     : 8);
    }
    it->entries = keys + f->keys_indices + index_bytes;
    return obj_ok(r, it->count <= slots);
}

bool obj_values_open(struct render *r, uint64_t keys, uint64_t values, bool plain,
                     struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint8_t size, capacity;

    if (!keys_open(r, keys, it))
        return false;
    it->values = values + f->values_first;
    if (plain)
        return true;
    size = obj_u8(r, values + f->values_size);
    capacity = f->values_valid != 0 ? obj_u8(r, values + f->values_capacity) : 0;
    it->order = it->values + f->values_order + capacity * 8u;
    it->order_step = f->values_order_next - f->values_order;
    it->used = size;
    /* From here on `count` is the number of keys and `used` that of values: obj_dict_next() follows `order`. */
    return obj_ok(r, size <= it->count && (f->values_valid == 0 || size <= capacity));
}

bool obj_dict_open(struct render *r, uint64_t dict, struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint64_t keys, values, used;

    memset(it, 0, sizeof *it);
    if (!obj_ok(r, pywalk_plausible(dict)))
        return false;
    used = obj_count(r, dict + f->dict_used);
    keys = obj_pointer(r, dict + f->dict_keys);
    values = obj_pointer(r, dict + f->dict_values);
    if (values != 0 && f->keys_kind != 0)
        return obj_values_open(r, keys, values, false, it);
    if (values != 0)
        obj_values_open(r, keys, values, true, it);
    else
        keys_open(r, keys, it);
    it->used = used;
    return obj_ok(r, used <= it->count);
}

bool obj_dict_next(struct render *r, struct dict_iter *it, uint64_t *key, uint64_t *value) {
    uint64_t entry, at;

    while (r->rc == 0 && it->i < (it->order != 0 ? it->used : it->count)) {
        at = it->i++;
        if (it->order != 0)
            at = obj_u8(r, it->order + at * it->order_step);
        obj_ok(r, at < it->count);
        entry = it->entries + at * it->size;
        *value = obj_pointer(r, it->values != 0 ? it->values + at * 8 : entry + it->at_value);
        if (*value == 0) /* deleted */
            continue;
        *key = obj_pointer(r, entry + it->at_key);
        return obj_ok(r, *key != 0);
    }
    return false;
}

bool obj_dict_find(struct render *r, uint64_t dict, const char *name, uint64_t *value) {
    uint64_t key, n = strlen(name);
    struct dict_iter it;
    bool found = false;
    char have[64];

    if (r->rc != 0)
        return false;
    obj_dict_open(r, dict, &it);
    for (unsigned guard = 0; guard < MAX_FIND && !found && obj_dict_next(r, &it, &key, value);
         guard++)
        found = obj_u64(r, key + pywalk_offsets(&r->pw)->f.str_length) == n &&
                pywalk_str(&r->pw, key, have, sizeof have) >= 0 && strcmp(have, name) == 0;
    obj_error(r);
    return found;
}
