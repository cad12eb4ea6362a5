/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of an instance: in __slots__, in its __dict__, or (3.11+) in values of its own from which no dictionary has
 * been made yet. Nothing that a class computes.
 */
#include "object_render.h"

#define MAX_TYPES   64
#define MAX_MEMBERS 256

/* The slots of one class: its members that hold any object. */
static void slots_open(struct render *r, const struct object_type *t, struct attrs_iter *it) {
    it->member = it->members_end = 0;
    if (t->heap && t->members != 0 && pywalk_plausible(t->members) && t->nmembers > 0 &&
        t->nmembers <= MAX_MEMBERS) {
        it->member = t->members;
        it->members_end = t->members + (uint64_t)(t->nmembers * r->f->member_size);
    }
    it->next_type = t->heap ? t->base : 0;
}

/* Where the instance's dictionary is: 0 there is none, 1 it->dict is open, -errno. */
static int dict_of(struct render *r, uint64_t obj, const struct object_type *t,
                   struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint64_t word = 0, size = 0;
    uint8_t valid = 0;
    int rc = 0;

    if (f->flag_managed_dict != 0 && (t->flags & (uint64_t)f->flag_managed_dict) != 0) {
        uint64_t at = obj + (uint64_t)f->managed_dict;
        if (f->managed_values != 0) {
            rc = obj_get_pointer(r, obj + (uint64_t)f->managed_values, &word);
            if (rc == 0 && word != 0) {
                rc = obj_values_open(r, t->cached_keys, word, false, it);
                return rc == 0 ? 1 : rc;
            }
        } else if ((t->flags & (uint64_t)f->flag_inline_values) != 0) {
            at = obj + (uint64_t)(t->basicsize + f->inline_values);
            rc = get(r, at + (uint64_t)f->values_valid, &valid, 1);
            if (rc == 0 && valid == 1) {
                rc = obj_values_open(r, t->cached_keys, at, false, it);
                return rc == 0 ? 1 : rc;
            }
            at = obj + (uint64_t)f->managed_dict;
        }
        if (rc == 0)
            rc = get_u64(r, at, &word);
        if (rc == 0 && f->managed_tagged != 0 && (word & 1) != 0) {
            word += (uint64_t)f->managed_tagged;
            rc = pywalk_plausible(word) ? obj_values_open(r, t->cached_keys, word, false, it)
                                        : -EBADMSG;
            return rc == 0 ? 1 : rc;
        }
    } else if (t->dictoffset > 0) {
        rc = get_u64(r, obj + (uint64_t)t->dictoffset, &word);
    } else if (t->dictoffset < 0) {
        /* counted from the end of an object of variable size */
        rc = get_u64(r, obj + (uint64_t)f->ob_size, &size);
        if (rc == 0 && (int64_t)size < 0) /* an int's sign is that of its size */
            size = 0 - size;
        if (rc == 0 && size > 1u << 30)
            rc = -EBADMSG;
        if (rc == 0) {
            int64_t total = t->basicsize + (int64_t)size * t->itemsize;
            total = (total + 7) & ~(int64_t)7;
            rc = total + t->dictoffset > 0
                     ? get_u64(r, obj + (uint64_t)(total + t->dictoffset), &word)
                     : -EBADMSG;
        }
    }
    if (rc != 0 || word == 0)
        return rc;
    rc = obj_dict_open(r, word, it);
    return rc == 0 ? 1 : rc;
}

void obj_attrs_open(struct render *r, uint64_t obj, const struct object_type *t,
                    struct attrs_iter *it) {
    memset(it, 0, sizeof *it);
    it->obj = obj;
    slots_open(r, t, it);
    it->in_dict = dict_of(r, obj, t, &it->dict) == 1;
}

/* The next slot with a value: 1, 0, -errno. */
static int next_slot(struct render *r, struct attrs_iter *it, char *name, size_t n,
                     uint64_t *value) {
    const struct object_fields *f = r->f;
    struct object_type base;
    uint64_t text, offset, member;
    uint32_t type;
    int rc;

    for (;;) {
        while (it->member == it->members_end) {
            if (it->next_type == 0 || it->types++ == MAX_TYPES)
                return 0;
            rc = obj_type_read(r, it->next_type, &base);
            if (rc != 0)
                return rc;
            slots_open(r, &base, it);
        }
        member = it->member;
        it->member += (uint64_t)f->member_size;
        rc = get(r, member + (uint64_t)f->member_type, &type, sizeof type);
        if (rc == 0)
            rc = get_u64(r, member + (uint64_t)f->member_offset, &offset);
        if (rc == 0)
            rc = get_u64(r, member + (uint64_t)f->member_name, &text);
        if (rc != 0)
            return rc;
        if (type != f->member_object)
            continue;
        rc = offset < 1 << 20 ? obj_get_pointer(r, it->obj + offset, value) : -EBADMSG;
        if (rc != 0)
            return rc;
        if (*value == 0)
            continue;
        /* The text may end just before memory does. */
        for (size_t i = 0; i < n; i++) {
            rc = i + 1 < n ? get(r, text + i, name + i, 1) : 0;
            if (rc != 0)
                return rc;
            if (i + 1 == n)
                name[i] = '\0';
            if (name[i] == '\0')
                return 1;
        }
    }
}

int obj_attrs_next(struct render *r, struct attrs_iter *it, char *name, size_t n, uint64_t *value) {
    uint64_t key;
    int rc = next_slot(r, it, name, n, value);

    if (rc == 0 && it->in_dict) {
        rc = obj_dict_next(r, &it->dict, &key, value);
        if (rc == 1) {
            rc = pywalk_str(&r->pw, key, name, n);
            rc = rc < 0 ? rc : 1;
        }
    }
    return rc;
}

int obj_attrs_find(struct render *r, uint64_t obj, const struct object_type *t, const char *name,
                   uint64_t *value) {
    struct attrs_iter it;
    char have[64];
    int rc;

    obj_attrs_open(r, obj, t, &it);
    do
        rc = obj_attrs_next(r, &it, have, sizeof have, value);
    while (rc == 1 && strcmp(have, name) != 0);
    return rc == 1 ? 0 : rc == 0 ? -ENOENT : rc;
}
