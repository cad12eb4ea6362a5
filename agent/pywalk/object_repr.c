/* SPDX-License-Identifier: Apache-2.0 */
/* pywalk_repr(): which kind an object is of, and the containers. */
#include "object_render.h"

bool obj_more(struct render *r, uint64_t i, uint64_t count) {
    if (r->full || i >= count)
        return false;
    if (i > 0)
        obj_put(r, ", ");
    if (i < r->limit.items)
        return true;
    obj_put_format(r, "... (%llu)", (unsigned long long)count);
    return false;
}

/* `names`: a tuple of str, the fields of a named tuple, or 0. */
static void put_sequence(struct render *r, uint64_t items, uint64_t count, uint64_t names) {
    char name[64];
    uint64_t item, its_name;

    for (uint64_t i = 0; obj_more(r, i, count); i++) {
        int rc = obj_get_pointer(r, items + i * 8, &item);
        if (rc == 0 && names != 0) {
            rc = obj_get_pointer(r, names + (uint64_t)r->f->tuple_items + i * 8, &its_name);
            if (rc == 0)
                rc = pywalk_str(&r->pw, its_name, name, sizeof name);
            if (rc >= 0) {
                obj_put_clean(r, name);
                obj_put(r, "=");
                rc = 0;
            }
        }
        if (rc != 0) {
            obj_put_error(r, rc, items + i * 8);
            break;
        }
        obj_render(r, item);
    }
}

static void put_list(struct render *r, uint64_t addr) {
    const struct object_fields *f = r->f;
    uint64_t count, items = 0;
    int rc = obj_get_count(r, addr + (uint64_t)f->ob_size, &count);

    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)f->list_items, &items);
    if (rc == 0 && items == 0 && count != 0)
        rc = -EBADMSG;
    if (rc != 0) {
        obj_put_error(r, rc, addr);
    } else if (count == 0) {
        obj_put(r, "[]");
    } else if (!obj_enter(r, addr)) {
        obj_put(r, "[...]");
    } else {
        obj_put(r, "[");
        put_sequence(r, items, count, 0);
        obj_put(r, "]");
        obj_leave(r);
    }
}

/* The names of a named tuple's fields: a tuple as long, or 0. */
static uint64_t tuple_names(struct render *r, const struct object_type *t, uint64_t count) {
    struct object_type its;
    uint64_t names, n;

    if (!t->heap || obj_type_attribute(r, t, "_fields", &names) != 0 ||
        obj_type_of(r, names, &its) != 0 || its.kind != KIND_TUPLE ||
        obj_get_count(r, names + (uint64_t)r->f->ob_size, &n) != 0 || n != count)
        return 0;
    return names;
}

static void put_tuple(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    uint64_t count, names;
    int rc = obj_get_count(r, addr + (uint64_t)f->ob_size, &count);

    if (rc != 0) {
        obj_put_error(r, rc, addr);
        return;
    }
    names = tuple_names(r, t, count);
    if (!t->exact) {
        obj_put_type(r, t, false);
        if (names == 0)
            obj_put(r, "(");
    }
    if (count == 0) {
        obj_put(r, "()");
    } else if (!obj_enter(r, addr)) {
        obj_put(r, "(...)");
    } else {
        obj_put(r, "(");
        put_sequence(r, addr + (uint64_t)f->tuple_items, count, names);
        obj_put(r, count == 1 && names == 0 ? ",)" : ")");
        obj_leave(r);
    }
    if (!t->exact && names == 0)
        obj_put(r, ")");
}

static void put_dict(struct render *r, uint64_t addr) {
    struct dict_iter it;
    uint64_t key, value;
    int rc = obj_dict_open(r, addr, &it);

    if (rc != 0) {
        obj_put_error(r, rc, addr);
        return;
    }
    if (it.used == 0 && it.values == 0) {
        obj_put(r, "{}");
        return;
    }
    if (!obj_enter(r, addr)) {
        obj_put(r, "{...}");
        return;
    }
    obj_put(r, "{");
    for (uint64_t i = 0; !r->full; i++) {
        rc = obj_dict_next(r, &it, &key, &value);
        if (rc <= 0)
            break;
        if (i > 0)
            obj_put(r, ", ");
        if (i == r->limit.items) {
            obj_put_format(r, "... (%llu)", (unsigned long long)it.used);
            break;
        }
        obj_render(r, key);
        obj_put(r, ": ");
        obj_render(r, value);
    }
    if (rc < 0)
        obj_put_error(r, rc, addr);
    obj_put(r, "}");
    obj_leave(r);
}

/* The next element: 1, 0, -errno. A removed one's hash is -1, which no object's is. */
static int set_next(struct render *r, uint64_t table, uint64_t mask, uint64_t *i, uint64_t *key) {
    const struct object_fields *f = r->f;
    uint8_t entry[32];

    while (*i <= mask) {
        int rc = get(r, table + (*i)++ * (uint64_t)f->set_entry, entry, (size_t)f->set_entry);
        if (rc != 0)
            return rc;
        *key = load64(entry + f->set_key);
        if (*key == 0 || load64(entry + f->set_hash) == UINT64_MAX)
            continue;
        return 1;
    }
    return 0;
}

static void put_set(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    uint64_t used = 0, mask = 0, table = 0, slot = 0, key = 0;
    bool braces = t->exact && t->kind == KIND_SET;
    int rc = obj_get_count(r, addr + (uint64_t)f->set_used, &used);

    if (rc == 0)
        rc = obj_get_count(r, addr + (uint64_t)f->set_mask, &mask);
    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)f->set_table, &table);
    if (rc == 0 && (table == 0 || used > mask || (mask & (mask + 1)) != 0))
        rc = -EBADMSG;
    if (rc != 0 || f->set_entry > 32) {
        obj_put_error(r, rc != 0 ? rc : -EBADMSG, addr);
        return;
    }
    if (!braces || used == 0) {
        obj_put_type(r, t, false);
        obj_put(r, "(");
    }
    if (used != 0 && !obj_enter(r, addr)) {
        obj_put(r, "{...}");
    } else if (used != 0) {
        obj_put(r, "{");
        for (uint64_t i = 0; obj_more(r, i, used); i++) {
            rc = set_next(r, table, mask, &slot, &key);
            if (rc <= 0) {
                obj_put_error(r, rc == 0 ? -EBADMSG : rc, addr);
                break;
            }
            obj_render(r, key);
        }
        obj_put(r, "}");
        obj_leave(r);
    }
    if (!braces || used == 0)
        obj_put(r, ")");
}

/* Three pointers to objects: a slice's, or a range's, whose step is not shown when it is 1. */
static void put_three(struct render *r, uint64_t addr, uint64_t at, bool range) {
    uint64_t part[3];
    struct object_type t;
    int rc = 0;

    for (unsigned i = 0; i < 3 && rc == 0; i++) {
        rc = obj_get_pointer(r, at + i * 8, &part[i]);
        if (rc == 0 && range)
            rc = obj_type_of(r, part[i], &t) != 0 || t.kind != KIND_INT ? -EBADMSG : 0;
    }
    if (rc != 0) {
        obj_put_error(r, rc, addr);
        return;
    }
    if (!obj_enter(r, addr)) {
        obj_put(r, "slice(...)");
        return;
    }
    obj_put(r, range ? "range(" : "slice(");
    for (unsigned i = 0; i < 3; i++) {
        size_t before = r->n;
        if (i > 0)
            obj_put(r, ", ");
        obj_render(r, part[i]);
        if (range && i == 2 && r->n - before == 3 && memcmp(r->buf + before, ", 1", 3) == 0)
            r->n = before;
    }
    obj_put(r, ")");
    obj_leave(r);
}

static void put_exception(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    struct object_type its;
    uint64_t args = 0, count = 0;
    const char *dot = strrchr(t->name, '.');
    int rc = obj_get_pointer(r, addr + (uint64_t)f->exception_args, &args);

    obj_put_clean(r, dot != NULL ? dot + 1 : t->name);
    if (rc == 0 && args == 0) { /* not initialised yet */
        obj_put(r, "()");
        return;
    }
    if (rc == 0)
        rc = obj_type_of(r, args, &its);
    if (rc == 0 && its.kind == KIND_TUPLE)
        rc = obj_get_count(r, args + (uint64_t)f->ob_size, &count);
    obj_put(r, "(");
    if (rc == 0 && count != 0 && !obj_enter(r, addr)) {
        obj_put(r, "...");
    } else if (rc == 0 && count != 0) {
        put_sequence(r, args + (uint64_t)f->tuple_items, count, 0);
        obj_leave(r);
    }
    obj_put(r, ")");
    if (rc != 0)
        obj_put_error(r, rc, addr);
}

static void put_bytearray(struct render *r, uint64_t addr) {
    uint64_t size, start = 0;
    int rc = obj_get_count(r, addr + (uint64_t)r->f->ob_size, &size);

    if (rc == 0 && size != 0)
        rc = get_u64(r, addr + (uint64_t)r->f->bytearray_start, &start);
    if (rc != 0)
        obj_put_error(r, rc, addr);
    else
        obj_put_binary(r, start, size);
}

/* Of a kind whose text is Name(VALUE) for a subclass. */
static void put_value(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    double v[2];
    uint64_t size;
    int rc;

    switch (t->kind) {
    case KIND_INT:
        obj_put_int(r, addr);
        break;
    case KIND_FLOAT:
        rc = get(r, addr + (uint64_t)f->float_value, v, sizeof *v);
        if (rc != 0)
            obj_put_error(r, rc, addr);
        else
            obj_put_float(r, v[0], 53, true);
        break;
    case KIND_COMPLEX:
        rc = get(r, addr + (uint64_t)f->complex_value, v, sizeof v);
        if (rc != 0)
            obj_put_error(r, rc, addr);
        else
            obj_put_complex(r, v[0], v[1], 53);
        break;
    case KIND_STR:
        obj_put_str(r, addr);
        break;
    case KIND_BYTES:
        rc = obj_get_count(r, addr + (uint64_t)f->ob_size, &size);
        if (rc != 0)
            obj_put_error(r, rc, addr);
        else
            obj_put_binary(r, addr + pywalk_offsets(&r->pw)->f.bytes_data, size);
        break;
    case KIND_BYTEARRAY:
        put_bytearray(r, addr);
        break;
    case KIND_LIST:
        put_list(r, addr);
        break;
    default:
        put_dict(r, addr);
    }
}

static void put_bool(struct render *r, uint64_t addr) {
    uint32_t digit = 0;
    int rc = obj_get_small(r, addr, &digit);

    if (rc == 0 && digit > 1)
        rc = -EBADMSG;
    if (rc != 0)
        obj_put_error(r, rc, addr);
    else
        obj_put(r, digit != 0 ? "True" : "False");
}

void obj_render(struct render *r, uint64_t addr) {
    struct object_type t;
    int rc;

    if (r->full)
        return;
    if (addr == 0) {
        obj_put(r, "<NULL>");
        return;
    }
    rc = obj_type_of(r, addr, &t);
    if (rc != 0) {
        obj_put_error(r, rc, addr);
        return;
    }
    switch (t.kind) {
    case KIND_NONE:
        obj_put(r, "None");
        break;
    case KIND_ELLIPSIS:
        obj_put(r, "Ellipsis");
        break;
    case KIND_NOT_IMPLEMENTED:
        obj_put(r, "NotImplemented");
        break;
    case KIND_BOOL:
        put_bool(r, addr);
        break;
    case KIND_INT:
    case KIND_FLOAT:
    case KIND_COMPLEX:
    case KIND_STR:
    case KIND_BYTES:
    case KIND_BYTEARRAY:
    case KIND_LIST:
    case KIND_DICT:
        if (obj_put_enum(r, addr, &t))
            break;
        if (!t.exact || t.kind == KIND_BYTEARRAY) {
            obj_put_type(r, &t, false);
            obj_put(r, "(");
        }
        put_value(r, addr, &t);
        if (!t.exact || t.kind == KIND_BYTEARRAY)
            obj_put(r, ")");
        break;
    case KIND_TUPLE:
        put_tuple(r, addr, &t);
        break;
    case KIND_SET:
    case KIND_FROZENSET:
        put_set(r, addr, &t);
        break;
    case KIND_RANGE:
        put_three(r, addr, addr + (uint64_t)r->f->range_start, true);
        break;
    case KIND_SLICE:
        put_three(r, addr, addr + (uint64_t)r->f->slice_start, false);
        break;
    case KIND_EXCEPTION:
        put_exception(r, addr, &t);
        break;
    case KIND_NDARRAY:
        obj_put_ndarray(r, addr, &t);
        break;
    case KIND_NUMPY_SCALAR:
        obj_put_numpy_scalar(r, addr, &t);
        break;
    case KIND_TENSOR:
        obj_put_tensor(r, addr, &t);
        break;
    case KIND_TORCH_DTYPE:
    case KIND_TORCH_DEVICE:
        obj_put_torch_named(r, addr, &t);
        break;
    case KIND_DEQUE:
        obj_put_deque(r, addr, &t);
        break;
    case KIND_STANDARD:
        obj_put_standard(r, addr, &t);
        break;
    case KIND_OBJECT:
        obj_put_instance(r, addr, &t);
        break;
    default:
        obj_put_named(r, addr, &t);
    }
}

int pywalk_repr(const struct pywalk_objects *ob, uint64_t addr, const struct pywalk_limits *limits,
                char *buf, size_t n) {
    struct render r;

    if (n < 16)
        return -EINVAL;
    obj_begin(&r, ob, limits, buf, n);
    obj_render(&r, addr);
    return obj_end(&r);
}

int pywalk_type_name(const struct pywalk_objects *ob, uint64_t addr, char *buf, size_t n) {
    struct object_type t;
    struct render r;
    int rc;

    if (n < 16)
        return -EINVAL;
    obj_begin(&r, ob, NULL, buf, n);
    rc = obj_type_of(&r, addr, &t);
    if (rc != 0)
        return rc;
    obj_put_type(&r, &t, true);
    return obj_end(&r);
}
