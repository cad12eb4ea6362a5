/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types: what kind of object a type describes, and what it is called.
 *
 * Built-in kinds are known by the flags that CPython itself tests, else by the name of the first type along tp_base that was not
 * made by a class statement; the memory layout comes from that type. No address of a type is needed.
 */
#include "object_render.h"

#define MAX_BASES   64
#define MAX_MEMBERS 64

bool obj_type_read(struct render *r, uint64_t addr, struct object_type *t) {
    const struct object_fields *f = r->f;
    uint8_t bytes[512];

    memset(t, 0, sizeof *t);
    if (!obj_ok(r, pywalk_plausible(addr) && f->tp_dictoffset + 8 <= (int64_t)sizeof bytes) ||
        !obj_get(r, addr, bytes, f->tp_dictoffset + 8))
        return false;
    t->addr = addr;
    t->meta = load64(bytes + f->ob_head - 8);
    t->flags = load64(bytes + f->tp_flags);
    t->heap = (t->flags & f->flag_heap) != 0;
    t->base = load64(bytes + f->tp_base);
    t->dict = load64(bytes + f->tp_dict);
    t->members = load64(bytes + f->tp_members);
    t->basicsize = load64(bytes + f->tp_basicsize);
    t->itemsize = load64(bytes + f->tp_itemsize);
    t->dictoffset = load64(bytes + f->tp_dictoffset);
    t->nmembers = load64(bytes + f->ob_size);
    uint64_t name = load64(bytes + f->tp_name);
    if (!obj_ok(r, pywalk_plausible(t->meta) && (t->base == 0 || pywalk_plausible(t->base)) &&
                       t->basicsize >= f->ob_head && t->basicsize <= 1 << 20 && t->itemsize >= 0 &&
                       t->itemsize <= 1 << 16))
        return false;
    /* The type of a type must be a subclass of `type`. */
    if (!obj_ok(r, (obj_u64(r, t->meta + f->tp_flags) & f->flag_type) != 0))
        return false;
    obj_c_text(r, name, t->name, sizeof t->name);
    for (char *p = t->name; *p != '\0'; p++)
        obj_ok(r, (unsigned char)*p >= 0x20 && *p != 0x7f);
    obj_ok(r, t->name[0] != '\0');
    if (t->heap) {
        t->qualname = obj_pointer(r, addr + f->ht_qualname);
        t->cached_keys = obj_pointer(r, addr + f->ht_cached_keys);
    }
    return r->rc == 0;
}

/* Whether C code made the type. From 3.10 on some of those are heap types as well; but a class statement puts no dot into the name. */
static bool is_native(const struct object_type *t) {
    const struct object_row *row = obj_row_of_name(t->name);

    return !t->heap || (row != NULL && row->in_library);
}

static void set_native(struct object_type *t, const struct object_type *native) {
    memcpy(t->native, native->name, sizeof t->native - 1);
    t->native_members = native->members;
    t->native_size = native->basicsize;
}

/* The type at `type`, with its kind. */
static bool find_kind(struct render *r, uint64_t type, struct object_type *t) {
    const struct object_row *by_flags, *by_name;
    struct object_type base;
    unsigned guard = 0;
    uint64_t at;

    if (!obj_type_read(r, type, t))
        return false;
    set_native(t, t);
    bool heap = !is_native(t);
    /* A static type that comes from others, and has no layout that we know (numpy's), may still be one of theirs. */
    for (at = t->base; heap && at != 0 && guard < MAX_BASES; guard++) {
        if (!obj_type_read(r, at, &base))
            return false;
        heap = !is_native(&base);
        at = base.base;
        set_native(t, &base);
    }
    if (!obj_ok(r, !heap))
        return false;
    by_flags = obj_row_of_flags(r->f, t->flags);
    by_name = obj_row_of_name(t->native);
    /* pandas' Timestamp is a datetime */
    while ((by_name == NULL || by_name->put == obj_put_instance) && by_flags->kind == KIND_OBJECT &&
           at != 0 && guard++ < MAX_BASES && obj_type_read(r, at, &base)) {
        by_name = obj_row_of_name(base.name);
        if (by_name != NULL && by_name->in_library)
            set_native(t, &base);
        else
            by_name = NULL;
        at = base.base;
    }
    obj_error(r);
    t->row = by_name;
    /* numpy.str_ and numpy.bytes_ have rows by their names, too */
    if (by_name == NULL || (by_name->kind == KIND_OBJECT && by_flags->kind != KIND_OBJECT))
        t->row = by_flags;
    t->kind = t->row->kind;
    t->exact = !t->heap && (t->row->flag == 0 || strcmp(t->name, t->row->name) == 0);
    return true;
}

bool obj_type_of(struct render *r, uint64_t addr, struct object_type *t) {
    struct object_type *known = NULL;

    t->kind = KIND_OTHER;
    if (!obj_ok(r, pywalk_plausible(addr)))
        return false;
    uint64_t type = obj_u64(r, addr + r->f->ob_head - 8);
    if (r->known != NULL && type != 0) {
        known = &r->known[(type >> 5) % OBJ_KNOWN];
        if (known->addr == type)
            *t = *known;
    }
    if (known == NULL || known->addr != type) {
        find_kind(r, type, t);
        if (known != NULL && r->rc == 0)
            *known = *t;
    }
    return r->rc == 0;
}

bool obj_is(struct render *r, uint64_t addr, enum object_kind kind) {
    struct object_type t;

    if (r->rc != 0)
        return false;
    obj_type_of(r, addr, &t);
    return obj_error(r) == 0 && t.kind == kind;
}

bool obj_expect(struct render *r, uint64_t addr, enum object_kind kind) {
    struct object_type t;

    return obj_type_of(r, addr, &t) && obj_ok(r, t.kind == kind);
}

uint64_t obj_tuple(struct render *r, uint64_t addr, uint64_t *count) {
    *count = obj_expect(r, addr, KIND_TUPLE) ? obj_count(r, addr + r->f->ob_size) : 0;
    return addr + r->f->tuple_items;
}

bool obj_type_attribute(struct render *r, const struct object_type *t, const char *name,
                        uint64_t *value) {
    struct object_type base = *t;

    for (unsigned i = 0; i < MAX_BASES && base.heap; i++) {
        if (obj_dict_find(r, base.dict, name, value))
            return true;
        if (base.base == 0 || !obj_type_read(r, base.base, &base))
            break;
    }
    obj_error(r);
    return false;
}

/* Whether the str at addr is the name of this module, or of one in it. */
static bool is_within(struct render *r, uint64_t addr, const char *module) {
    size_t n = strlen(module);
    char have[64];

    return obj_text(r, addr, have, sizeof have) && strncmp(have, module, n) == 0 &&
           (have[n] == '\0' || have[n] == '.');
}

bool obj_type_is(struct render *r, const struct object_type *t, const char *module,
                 const char *name) {
    struct object_type base = *t;
    bool found = false;
    uint64_t its;

    for (unsigned i = 0; i < MAX_BASES && base.heap && !found; i++) {
        found = strcmp(base.name, name) == 0 && obj_dict_find(r, base.dict, "__module__", &its) &&
                is_within(r, its, module);
        obj_error(r);
        if (base.base == 0 || !obj_type_read(r, base.base, &base))
            break;
    }
    obj_error(r);
    return found;
}

uint64_t obj_member(struct render *r, uint64_t addr, const struct object_type *t,
                    const char *name) {
    const struct object_fields *f = r->f;
    size_t n = strlen(name) + 1;
    uint64_t text, offset;
    char have[16];

    if (r->rc != 0)
        return 0;
    for (uint64_t m = t->native_members, i = 0; m != 0 && i < MAX_MEMBERS;
         i++, m += f->member_size) {
        text = obj_u64(r, m + f->member_name);
        if (r->rc != 0 || text == 0)
            break;
        if (!obj_get(r, text, have, n) || memcmp(have, name, n) != 0) {
            if (r->rc != -E2BIG) /* another name may end where memory does */
                obj_error(r);
            continue;
        }
        offset = obj_u64(r, m + f->member_offset);
        if (r->rc == 0 && offset <= (uint64_t)t->native_size - 8)
            return addr + offset;
        break;
    }
    if (r->rc != -E2BIG)
        r->rc = -ENOTSUP;
    return 0;
}

uint64_t obj_member_object(struct render *r, uint64_t addr, const struct object_type *t,
                           const char *name) {
    uint64_t at = obj_member(r, addr, t, name), value = obj_pointer(r, at);

    return obj_ok(r, value != 0) ? value : 0;
}

void obj_put_type(struct render *r, const struct object_type *t, bool module) {
    char name[160];
    uint64_t its;

    if (t->heap && module && obj_dict_find(r, t->dict, "__module__", &its) &&
        obj_text(r, its, name, sizeof name) && name[0] != '\0' && strcmp(name, "builtins") != 0) {
        obj_put_clean(r, name);
        obj_put(r, ".");
    }
    obj_error(r);
    obj_put_clean(r, t->heap && obj_text(r, t->qualname, name, sizeof name) && name[0] != '\0'
                         ? name
                         : t->name);
    obj_error(r);
}
