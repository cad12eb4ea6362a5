/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dictionaries, in every layout: combined ones, whose entries hold the values (24 bytes with the hash, or 16 when all keys
 * are str, 3.11+); split ones, whose keys are shared by the instances of a class; and values without a dictionary.
 *
 * A split one's values are, to 3.10, in the order of the keys. From 3.11 the order in which they came is kept in bytes
 * beside them: before the values and backwards to 3.12, behind them from 3.13 on.
 */
#include "object_render.h"

#define MAX_FIND 20000 /* sys.modules of a large program */

/* The entries behind the hash table's indices. */
static int keys_open(struct render *r, uint64_t keys, struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint8_t head[64];
    uint64_t slots, index_bytes;
    int rc;

    if (!pywalk_plausible(keys) || f->keys_indices > (int64_t)sizeof head)
        return -EBADMSG;
    rc = get(r, keys, head, (size_t)f->keys_indices);
    if (rc != 0)
        return rc;
    it->count = load64(head + f->keys_entries);
    it->size = f->entry_general;
    it->at_key = f->entry_general_key;
    it->at_value = f->entry_general_value;
    if (f->keys_kind != 0) {
        unsigned log2 = head[f->keys_log2], log2_bytes = head[f->keys_log2_bytes];
        if (log2 > 40 || log2_bytes > 43 || log2_bytes < log2)
            return -EBADMSG;
        slots = 1ull << log2;
        index_bytes = 1ull << log2_bytes;
        if (head[f->keys_kind] > 2)
            return -EBADMSG;
        if (head[f->keys_kind] != f->keys_general) {
            it->size = f->entry_unicode;
            it->at_key = f->entry_unicode_key;
            it->at_value = f->entry_unicode_value;
        }
    } else {
        slots = load64(head + f->keys_log2);
        if (slots == 0 || slots > 1ull << 40 || (slots & (slots - 1)) != 0)
            return -EBADMSG;
        index_bytes = slots * (slots <= 0xff         ? 1
                               : slots <= 0xffff     ? 2
                               : slots <= UINT32_MAX ? 4
                                                     : 8);
    }
    it->entries = keys + (uint64_t)f->keys_indices + index_bytes;
    return it->count > slots ? -EBADMSG : 0;
}

int obj_values_open(struct render *r, uint64_t keys, uint64_t values, bool plain,
                    struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint8_t size, capacity = 0;
    int rc;

    memset(it, 0, sizeof *it);
    rc = keys_open(r, keys, it);
    if (rc != 0)
        return rc;
    it->values = values + (uint64_t)f->values_first;
    if (plain)
        return 0;
    rc = get(r, values + (uint64_t)f->values_size, &size, 1);
    if (rc == 0 && f->values_valid != 0)
        rc = get(r, values + (uint64_t)f->values_capacity, &capacity, 1);
    if (rc == 0 && (size > it->count || (f->values_valid != 0 && size > capacity)))
        rc = -EBADMSG;
    it->order = it->values + (uint64_t)f->values_order + capacity * 8u;
    it->order_step = f->values_order_next - f->values_order;
    it->used = size;
    it->i = 0;
    /* From here on count is that of the keys, used that of the values: dict_next walks the order. */
    return rc;
}

int obj_dict_open(struct render *r, uint64_t dict, struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint64_t keys, values, used;
    int rc;

    if (!pywalk_plausible(dict))
        return -EBADMSG;
    rc = obj_get_count(r, dict + (uint64_t)f->dict_used, &used);
    if (rc == 0)
        rc = obj_get_pointer(r, dict + (uint64_t)f->dict_keys, &keys);
    if (rc == 0)
        rc = obj_get_pointer(r, dict + (uint64_t)f->dict_values, &values);
    if (rc != 0)
        return rc;
    if (values != 0)
        return obj_values_open(r, keys, values, f->keys_kind == 0, it);
    memset(it, 0, sizeof *it);
    rc = keys_open(r, keys, it);
    it->used = used;
    return rc == 0 && used > it->count ? -EBADMSG : rc;
}

int obj_dict_next(struct render *r, struct dict_iter *it, uint64_t *key, uint64_t *value) {
    uint64_t entry, at;
    uint8_t index;
    int rc;

    for (;;) {
        if (it->i >= (it->order != 0 ? it->used : it->count))
            return 0;
        at = it->i++;
        if (it->order != 0) {
            rc = get(r, it->order + at * (uint64_t)it->order_step, &index, 1);
            if (rc != 0)
                return rc;
            if (index >= it->count)
                return -EBADMSG;
            at = index;
        }
        entry = it->entries + at * (uint64_t)it->size;
        rc = obj_get_pointer(
            r, it->values != 0 ? it->values + at * 8 : entry + (uint64_t)it->at_value, value);
        if (rc == 0 && *value == 0) /* deleted */
            continue;
        if (rc == 0)
            rc = obj_get_pointer(r, entry + (uint64_t)it->at_key, key);
        if (rc == 0 && *key == 0)
            rc = -EBADMSG;
        return rc == 0 ? 1 : rc;
    }
}

int obj_dict_find(struct render *r, uint64_t dict, const char *name, uint64_t *value) {
    struct dict_iter it;
    uint64_t key, length, wanted = strlen(name);
    char have[64];
    int rc;

    rc = obj_dict_open(r, dict, &it);
    for (unsigned guard = 0; rc == 0 && guard < MAX_FIND; guard++) {
        rc = obj_dict_next(r, &it, &key, value);
        if (rc <= 0)
            return rc == 0 ? -ENOENT : rc;
        rc = get_u64(r, key + pywalk_offsets(&r->pw)->f.str_length, &length);
        if (rc == 0 && length == wanted && pywalk_str(&r->pw, key, have, sizeof have) >= 0 &&
            strcmp(have, name) == 0)
            return 0;
    }
    return rc != 0 ? rc : -ENOENT;
}
