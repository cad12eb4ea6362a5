/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances of classes: data classes, enumerations, modules of torch.nn, anything with attributes. These are in __slots__, in the
 * object's __dict__, or (3.11+) in values of its own, until a dictionary is made of them. What a class computes is not shown.
 */
#include "object_render.h"

#define MAX_TYPES   64
#define MAX_MEMBERS 256

/* Iterates over the slots first, then over the instance's dictionary. */
struct attrs_iter {
    struct dict_iter dict;
    bool in_dict;
    uint64_t obj, member, members_end, next_type;
    unsigned types;
};

static void slots_open(struct render *r, const struct object_type *t, struct attrs_iter *it) {
    it->member = it->members_end = 0;
    if (t->heap && t->members != 0 && pywalk_plausible(t->members) && t->nmembers > 0 &&
        t->nmembers <= MAX_MEMBERS) {
        it->member = t->members;
        it->members_end = t->members + t->nmembers * r->f->member_size;
    }
    it->next_type = t->heap ? t->base : 0;
}

/* Where the pointer to the dictionary is if its offset counts from the end of an object of variable size. */
static uint64_t at_end(struct render *r, uint64_t obj, const struct object_type *t) {
    int64_t size = obj_u64(r, obj + r->f->ob_size), total;

    if (size < 0) /* an int's sign is that of its size */
        size = 0 - (uint64_t)size;
    if (!obj_ok(r, size >= 0 && size <= 1 << 30))
        return 0;
    total = (t->basicsize + size * t->itemsize + 7) & ~(int64_t)7;
    return obj_ok(r, total + t->dictoffset > 0) ? obj + total + t->dictoffset : 0;
}

/* Opens the instance's dictionary, or its values: false where it has none, or one that cannot be read. */
static bool dict_of(struct render *r, uint64_t obj, const struct object_type *t,
                    struct dict_iter *it) {
    const struct object_fields *f = r->f;
    uint64_t dict = 0, values = 0;

    if (f->flag_managed_dict != 0 && (t->flags & f->flag_managed_dict) != 0) {
        if (f->managed_values != 0) {
            values = obj_pointer(r, obj + f->managed_values);
        } else if ((t->flags & f->flag_inline_values) != 0) {
            values = obj + t->basicsize + f->inline_values;
            if (obj_u8(r, values + f->values_valid) != 1)
                values = 0;
        }
        if (values == 0)
            dict = obj_u64(r, obj + f->managed_dict);
        if (f->managed_tagged != 0 && (dict & 1) != 0) {
            values = dict + f->managed_tagged;
            obj_ok(r, pywalk_plausible(values));
        }
        if (values != 0)
            return obj_values_open(r, t->cached_keys, values, false, it);
    } else if (t->dictoffset != 0) {
        dict = obj_u64(r, t->dictoffset > 0 ? obj + t->dictoffset : at_end(r, obj, t));
    }
    return dict != 0 && obj_dict_open(r, dict, it);
}

static void attrs_open(struct render *r, uint64_t obj, const struct object_type *t,
                       struct attrs_iter *it) {
    memset(it, 0, sizeof *it);
    it->obj = obj;
    slots_open(r, t, it);
    it->in_dict = dict_of(r, obj, t, &it->dict);
    obj_error(r);
}

/* Gets the next slot that has a value. */
static bool next_slot(struct render *r, struct attrs_iter *it, char *name, size_t n,
                      uint64_t *value) {
    const struct object_fields *f = r->f;
    struct object_type base;
    uint64_t text, offset, member;
    uint32_t type;

    while (r->rc == 0) {
        while (it->member == it->members_end) {
            if (it->next_type == 0 || it->types++ == MAX_TYPES ||
                !obj_type_read(r, it->next_type, &base))
                return false;
            slots_open(r, &base, it);
        }
        member = it->member;
        it->member += f->member_size;
        type = obj_u32(r, member + f->member_type);
        offset = obj_u64(r, member + f->member_offset);
        text = obj_u64(r, member + f->member_name);
        if (type != f->member_object)
            continue;
        *value = obj_ok(r, offset < 1 << 20) ? obj_pointer(r, it->obj + offset) : 0;
        if (*value != 0) {
            obj_c_text(r, text, name, n);
            return r->rc == 0;
        }
    }
    return false;
}

/* Like obj_dict_next(), but gives the name as text. */
static bool attrs_next(struct render *r, struct attrs_iter *it, char *name, size_t n,
                       uint64_t *value) {
    uint64_t key;

    return next_slot(r, it, name, n, value) ||
           (it->in_dict && obj_dict_next(r, &it->dict, &key, value) && obj_text(r, key, name, n));
}

bool obj_attrs_find(struct render *r, uint64_t obj, const struct object_type *t, const char *name,
                    uint64_t *value) {
    struct attrs_iter it;
    bool found = false;
    char have[64];

    if (r->rc != 0)
        return false;
    attrs_open(r, obj, t, &it);
    while (!found && attrs_next(r, &it, have, sizeof have, value))
        found = strcmp(have, name) == 0;
    obj_error(r);
    return found;
}

/* ---- as text ---- */

/* Whether the type's metaclass is that of enum (EnumMeta; from 3.11 on EnumType). */
static bool is_enum(struct render *r, const struct object_type *t) {
    struct object_type meta;
    bool known = t->heap && obj_type_read(r, t->meta, &meta) && meta.heap;

    obj_error(r);
    return known &&
           (obj_type_is(r, &meta, "enum", "EnumMeta") || obj_type_is(r, &meta, "enum", "EnumType"));
}

bool obj_put_enum(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t name, value;
    char text[96] = "."; /* and the name: None where flags are combined, or none is set */

    if (!is_enum(r, t) || !obj_attrs_find(r, addr, t, "_name_", &name) ||
        !obj_attrs_find(r, addr, t, "_value_", &value) || !obj_enter(r, addr))
        return false;
    obj_put(r, "<");
    obj_put_clean(r, t->name);
    if (obj_is(r, name, KIND_STR) && pywalk_str(&r->pw, name, text + 1, sizeof text - 1) >= 0)
        obj_put_clean(r, text);
    obj_put(r, ": ");
    obj_render(r, value);
    obj_put(r, ">");
    obj_leave(r);
    return true;
}

void obj_put_instance(struct render *r, uint64_t addr, const struct object_type *t) {
    struct attrs_iter it;
    uint64_t value, unused;
    const char *first;
    char name[96];
    uint32_t shown = 0;
    bool record, module;

    if (obj_put_enum(r, addr, t) || obj_put_pandas(r, addr, t))
        return;
    record = t->heap && obj_type_attribute(r, t, "__dataclass_fields__", &unused);
    /* torch's modules keep parameters and hooks in attributes of their own: too much to show */
    module = t->heap && obj_type_is(r, t, "torch.nn.modules.module", "Module");
    obj_put_shape(r, record ? "%t(" : module ? "<%T at %@" : "<%t at %@", addr, t, NULL);
    first = record ? "" : ": ";
    attrs_open(r, addr, t, &it);
    if (!obj_enter(r, addr)) {
        obj_put(r, record ? "..." : ": ...");
    } else {
        while (!r->full && attrs_next(r, &it, name, sizeof name, &value)) {
            if (module && name[0] == '_')
                continue;
            if (!obj_next(r, shown++, r->limit.items, first))
                break;
            obj_put_clean(r, name);
            obj_put(r, "=");
            obj_render(r, value);
        }
        obj_leave(r);
    }
    if (r->rc != 0) {
        obj_put(r, shown > 0 ? ", " : first);
        obj_put_error(r, addr);
    }
    obj_put(r, record ? ")" : ">");
}
