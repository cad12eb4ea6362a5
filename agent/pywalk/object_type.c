/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types: what kind of object one describes, and what it is called.
 *
 * Built-in kinds are told by the flags that CPython itself tests, else by the name of the first type along tp_base that no
 * class statement made; that is where the memory layout comes from. No address of a type is needed.
 */
#include "object_render.h"

#include <ctype.h>

#define MAX_BASES 64

static const struct {
    const char *name;
    enum object_kind kind;
} names[] = {
    {"object", KIND_OBJECT},
    {"NoneType", KIND_NONE},
    {"ellipsis", KIND_ELLIPSIS},
    {"NotImplementedType", KIND_NOT_IMPLEMENTED},
    {"bool", KIND_BOOL},
    {"float", KIND_FLOAT},
    {"complex", KIND_COMPLEX},
    {"bytearray", KIND_BYTEARRAY},
    {"set", KIND_SET},
    {"frozenset", KIND_FROZENSET},
    {"range", KIND_RANGE},
    {"slice", KIND_SLICE},
    {"cell", KIND_CELL},
    {"function", KIND_FUNCTION},
    {"builtin_function_or_method", KIND_BUILTIN},
    {"method", KIND_METHOD},
    {"module", KIND_MODULE},
    {"generator", KIND_GENERATOR},
    {"coroutine", KIND_GENERATOR},
    {"async_generator", KIND_GENERATOR},
    {"code", KIND_CODE},
    {"numpy.ndarray", KIND_NDARRAY},
    {"torch._C._TensorBase", KIND_TENSOR}, /* to 2.0 */
    {"torch._C.TensorBase", KIND_TENSOR},
    {"torch.dtype", KIND_TORCH_DTYPE},
    {"torch.device", KIND_TORCH_DEVICE},
    {"collections.deque", KIND_DEQUE},
};

static int64_t word(const uint8_t *bytes, int64_t offset) {
    return (int64_t)load64(bytes + offset);
}

int obj_type_read(struct render *r, uint64_t addr, struct object_type *t) {
    const struct object_fields *f = r->f;
    uint8_t bytes[512];
    uint64_t flags, name;
    size_t n = 0;
    int rc;

    if (!pywalk_plausible(addr) || f->tp_dictoffset + 8 > (int64_t)sizeof bytes)
        return -EBADMSG;
    rc = get(r, addr, bytes, (size_t)f->tp_dictoffset + 8);
    if (rc != 0)
        return rc;
    memset(t, 0, sizeof *t);
    t->addr = addr;
    t->meta = load64(bytes + f->ob_head - 8);
    t->flags = load64(bytes + f->tp_flags);
    t->heap = (t->flags & (uint64_t)f->flag_heap) != 0;
    t->base = load64(bytes + f->tp_base);
    t->dict = load64(bytes + f->tp_dict);
    t->members = load64(bytes + f->tp_members);
    t->basicsize = word(bytes, f->tp_basicsize);
    t->itemsize = word(bytes, f->tp_itemsize);
    t->dictoffset = word(bytes, f->tp_dictoffset);
    t->nmembers = word(bytes, f->ob_size);
    name = load64(bytes + f->tp_name);
    /* A type is what has a type that is a subclass of type. */
    if (!pywalk_plausible(t->meta) || (t->base != 0 && !pywalk_plausible(t->base)) ||
        t->basicsize < f->ob_head || t->basicsize > 1 << 20 || t->itemsize < 0 ||
        t->itemsize > 1 << 16)
        return -EBADMSG;
    rc = get_u64(r, t->meta + (uint64_t)f->tp_flags, &flags);
    if (rc == 0 && (flags & (uint64_t)f->flag_type) == 0)
        rc = -EBADMSG;
    /* The name may end just before memory does: read it up to a boundary first. */
    while (rc == 0 && n < sizeof t->name - 1 && memchr(t->name, '\0', n) == NULL) {
        size_t some = 32 - (name + n) % 32;
        if (some > sizeof t->name - 1 - n)
            some = sizeof t->name - 1 - n;
        rc = get(r, name + n, t->name + n, some);
        n += some;
    }
    t->name[sizeof t->name - 1] = '\0';
    for (char *p = t->name; rc == 0 && *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            rc = -EBADMSG;
    if (rc == 0 && t->name[0] == '\0')
        rc = -EBADMSG;
    if (rc == 0 && t->heap) {
        rc = obj_get_pointer(r, addr + (uint64_t)f->ht_qualname, &t->qualname);
        if (rc == 0)
            rc = obj_get_pointer(r, addr + (uint64_t)f->ht_cached_keys, &t->cached_keys);
    }
    return rc;
}

static enum object_kind kind_of_flags(const struct object_fields *f, uint64_t flags) {
    const struct {
        int64_t flag;
        enum object_kind kind;
    } kinds[] = {
        {f->flag_long, KIND_INT},
        {f->flag_list, KIND_LIST},
        {f->flag_tuple, KIND_TUPLE},
        {f->flag_bytes, KIND_BYTES},
        {f->flag_str, KIND_STR},
        {f->flag_dict, KIND_DICT},
        {f->flag_exception, KIND_EXCEPTION},
        {f->flag_type, KIND_TYPE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((flags & (uint64_t)kinds[i].flag) != 0)
            return kinds[i].kind;
    return KIND_OBJECT;
}

static enum object_kind kind_of_name(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].kind;
    if (obj_is_standard(name))
        return KIND_STANDARD;
    return strncmp(name, "numpy.", 6) == 0 ? KIND_NUMPY_SCALAR : KIND_OBJECT;
}

/* Made by C, though some from 3.10 on like a class statement's: none of these puts a dot into the name. */
static bool is_native(const struct object_type *t) {
    enum object_kind kind = kind_of_name(t->name);

    return !t->heap || kind == KIND_DEQUE || kind == KIND_STANDARD;
}

static void set_native(struct object_type *t, const struct object_type *native) {
    memcpy(t->native, native->name, sizeof t->native - 1);
    t->native_members = native->members;
    t->native_size = native->basicsize;
}

int obj_type_of(struct render *r, uint64_t addr, struct object_type *t) {
    static const char *const plain[] = {"int", "str", "bytes", "list", "tuple", "dict", "type"};
    struct object_type base;
    uint64_t type, at;
    unsigned guard = 0;
    bool heap;
    int rc;

    if (!pywalk_plausible(addr))
        return -EBADMSG;
    rc = get_u64(r, addr + (uint64_t)r->f->ob_head - 8, &type);
    if (rc == 0)
        rc = obj_type_read(r, type, t);
    if (rc != 0)
        return rc;
    set_native(t, t);
    heap = !is_native(t);
    /* A static type that comes from others, and has no layout that we know (numpy's), may still be one of theirs. */
    for (at = t->base; heap && at != 0 && guard < MAX_BASES; guard++) {
        rc = obj_type_read(r, at, &base);
        if (rc != 0)
            return rc;
        heap = !is_native(&base);
        at = base.base;
        set_native(t, &base);
    }
    if (heap)
        return -EBADMSG;
    /* pandas' Timestamp is a datetime */
    while (kind_of_name(t->native) == KIND_OBJECT && kind_of_flags(r->f, t->flags) == KIND_OBJECT &&
           at != 0 && guard++ < MAX_BASES && obj_type_read(r, at, &base) == 0) {
        if (kind_of_name(base.name) == KIND_STANDARD)
            set_native(t, &base);
        at = base.base;
    }
    t->kind = kind_of_name(t->native);
    if (t->kind == KIND_OBJECT)
        t->kind = kind_of_flags(r->f, t->flags);
    else if (t->kind == KIND_NUMPY_SCALAR && kind_of_flags(r->f, t->flags) != KIND_OBJECT)
        t->kind = kind_of_flags(r->f, t->flags); /* numpy.str_, numpy.bytes_ */
    t->exact = !t->heap && (t->kind != KIND_OBJECT);
    if (kind_of_flags(r->f, t->flags) == t->kind && t->kind != KIND_EXCEPTION) {
        t->exact = false;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
            t->exact |= !t->heap && strcmp(t->name, plain[i]) == 0;
    }
    return 0;
}

int obj_type_attribute(struct render *r, const struct object_type *t, const char *name,
                       uint64_t *value) {
    struct object_type base = *t;
    int rc = -ENOENT;

    for (unsigned i = 0; i < MAX_BASES && base.heap; i++) {
        rc = obj_dict_find(r, base.dict, name, value);
        if (rc != -ENOENT || base.base == 0)
            break;
        if (obj_type_read(r, base.base, &base) != 0)
            break;
    }
    return rc;
}

/* Is the str at addr this module, or one in it? */
static bool is_within(struct render *r, uint64_t addr, const char *module) {
    size_t n = strlen(module);
    char have[64];

    return pywalk_str(&r->pw, addr, have, sizeof have) >= 0 && strncmp(have, module, n) == 0 &&
           (have[n] == '\0' || have[n] == '.');
}

bool obj_type_is(struct render *r, const struct object_type *t, const char *module,
                 const char *name) {
    struct object_type base = *t;
    uint64_t its;

    for (unsigned i = 0; i < MAX_BASES && base.heap; i++) {
        if (strcmp(base.name, name) == 0 && obj_dict_find(r, base.dict, "__module__", &its) == 0 &&
            is_within(r, its, module))
            return true;
        if (base.base == 0 || obj_type_read(r, base.base, &base) != 0)
            break;
    }
    return false;
}

void obj_put_type(struct render *r, const struct object_type *t, bool module) {
    char name[160];
    uint64_t its;

    if (!t->heap) {
        obj_put_clean(r, t->name);
        return;
    }
    if (module && obj_dict_find(r, t->dict, "__module__", &its) == 0 &&
        pywalk_str(&r->pw, its, name, sizeof name) > 0 && strcmp(name, "builtins") != 0) {
        obj_put_clean(r, name);
        obj_put(r, ".");
    }
    if (pywalk_str(&r->pw, t->qualname, name, sizeof name) > 0)
        obj_put_clean(r, name);
    else
        obj_put_clean(r, t->name);
}
