/* SPDX-License-Identifier: Apache-2.0 */
/* Containers: lists, tuples and named tuples, dictionaries, sets, ranges, deques; and exceptions, by their arguments. */
#include "object_render.h"

void obj_put_items(struct render *r, uint64_t items, uint64_t count, uint64_t names) {
    char name[64];
    uint64_t item, its_name;

    for (uint64_t i = 0; obj_more(r, i, count); i++) {
        item = obj_pointer(r, items + i * 8);
        if (names != 0 && (its_name = obj_pointer(r, names + i * 8)) != 0 &&
            obj_text(r, its_name, name, sizeof name)) {
            obj_put_clean(r, name);
            obj_put(r, "=");
        }
        if (r->rc != 0) {
            obj_put_error(r, items + i * 8);
            break;
        }
        obj_render(r, item);
    }
}

void obj_put_list(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    uint64_t count = obj_count(r, addr + r->f->ob_size);
    uint64_t items = obj_pointer(r, addr + r->f->list_items);

    if (obj_ok(r, items != 0 || count == 0) && obj_open(r, addr, count, "[]")) {
        obj_put_items(r, items, count, 0);
        obj_close(r, addr, "]");
    }
}

/* The field names of a named tuple, if there are `count` of them; else 0. */
static uint64_t tuple_names(struct render *r, const struct object_type *t, uint64_t count) {
    uint64_t names, n;

    if (!t->heap || !obj_type_attribute(r, t, "_fields", &names))
        return 0;
    names = obj_tuple(r, names, &n);
    return obj_error(r) == 0 && n == count ? names : 0;
}

void obj_put_tuple(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t count = obj_count(r, addr + r->f->ob_size), names;

    if (r->rc != 0)
        return;
    names = tuple_names(r, t, count);
    bool wrapped = !t->exact && names == 0;
    if (!t->exact)
        obj_put_type(r, t, false);
    if (wrapped)
        obj_put(r, "(");
    if (obj_open(r, addr, count, "()")) {
        obj_put_items(r, addr + r->f->tuple_items, count, names);
        obj_close(r, addr, count == 1 && names == 0 ? ",)" : ")");
    }
    if (wrapped)
        obj_put(r, ")");
}

void obj_put_dict(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    struct dict_iter it;
    uint64_t key, value;

    if (!obj_dict_open(r, addr, &it) || !obj_open(r, addr, it.used, "{}"))
        return;
    for (uint64_t i = 0; obj_more(r, i, it.used) && obj_dict_next(r, &it, &key, &value); i++) {
        obj_render(r, key);
        obj_put(r, ": ");
        obj_render(r, value);
    }
    obj_close(r, addr, "}");
}

bool obj_set_open(struct render *r, uint64_t set, struct set_iter *it) {
    const struct object_fields *f = r->f;

    *it = (struct set_iter){.table = obj_pointer(r, set + f->set_table),
                            .mask = obj_count(r, set + f->set_mask),
                            .used = obj_count(r, set + f->set_used)};
    return obj_ok(r, it->table != 0 && it->used <= it->mask && (it->mask & (it->mask + 1)) == 0);
}

/* A removed element has the hash -1, which no object has. */
uint64_t obj_set_next(struct render *r, struct set_iter *it) {
    const struct object_fields *f = r->f;

    while (r->rc == 0 && it->i <= it->mask) {
        uint64_t entry = it->table + it->i++ * f->set_entry;
        uint64_t key = obj_u64(r, entry + f->set_key);
        if (key != 0 && obj_u64(r, entry + f->set_hash) != UINT64_MAX)
            return key;
    }
    return 0;
}

void obj_put_set(struct render *r, uint64_t addr, const struct object_type *t) {
    struct set_iter it;
    uint64_t key;

    if (!obj_set_open(r, addr, &it))
        return;
    bool braces = t->exact && strcmp(t->native, "set") == 0 && it.used > 0;
    if (!braces)
        obj_put_shape(r, "%t(", addr, t, NULL);
    if (it.used > 0 && obj_open(r, addr, it.used, "{}")) {
        for (uint64_t i = 0; obj_more(r, i, it.used); i++) {
            key = obj_set_next(r, &it);
            if (obj_ok(r, key != 0))
                obj_render(r, key);
        }
        obj_close(r, addr, "}");
    }
    if (!braces)
        obj_put(r, ")");
}

/* The step is not shown when it is 1. */
void obj_put_range(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t part[3];

    for (unsigned i = 0; i < 3; i++) {
        part[i] = obj_pointer(r, addr + r->f->range_start + i * 8);
        obj_expect(r, part[i], KIND_INT);
    }
    if (r->rc != 0)
        return;
    bool one = obj_small_int(r, part[2]) == 1;
    obj_error(r); /* the step is a large int */
    obj_put_shape(r, one ? "range(%o, %o)" : "range(%o, %o, %o)", addr, t, part);
}

void obj_put_exception(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t args = obj_pointer(r, addr + r->f->exception_args), count = 0;

    obj_put_clean(r, obj_short(t->name));
    if (args != 0) /* it is initialised */
        args = obj_tuple(r, args, &count);
    if (obj_open(r, addr, count, "()")) {
        obj_put_items(r, args, count, 0);
        obj_close(r, addr, ")");
    }
}

/* ---- collections.deque ------------------------------------------------------------------------- */

/*
 * A deque is a chain of blocks. No header of CPython has its structures, which have been the same since 3.2; so what is read is
 * trusted only when the two ends, the number of elements and the blocks between them agree.
 */
#define BLOCK 64 /* elements */

/* What follows the object's head, which ends in its size: the blocks at both ends, and the indexes of the first and the last element in them; a count of
 * changes; how many elements it may hold, -1: any number. A block has a pointer to the block before it, its elements, and a pointer to the block after it. */
struct ends {
    uint64_t left, right, first, last, state, most;
};

void obj_put_deque(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t count = obj_count(r, addr + r->f->ob_size), block, at, item;
    struct ends e;

    obj_get(r, addr + r->f->ob_size + 8, &e, sizeof e);
    obj_ok(r, pywalk_plausible(e.left) && pywalk_plausible(e.right) && e.first <= BLOCK &&
                  (int64_t)e.last >= -1 && (int64_t)e.last < BLOCK && (int64_t)e.most >= -1 &&
                  count <= e.most);
    obj_ok(r, count == 0 || (e.first < BLOCK && (e.first + count - 1) % BLOCK == e.last &&
                             (e.first + count <= BLOCK) == (e.left == e.right)));
    obj_put_clean(r, obj_short(t->name));
    obj_put(r, "(");
    if (r->rc == 0 && obj_open(r, addr, count, "[]")) {
        block = e.left;
        at = e.first;
        for (uint64_t i = 0; obj_more(r, i, count); i++, at++) {
            if (at == BLOCK) {
                block = obj_pointer(r, block + 8 + BLOCK * 8);
                at = 0;
            }
            item = obj_ok(r, block != 0) ? obj_pointer(r, block + 8 + at * 8) : 0;
            if (r->rc == 0)
                obj_render(r, item);
        }
        obj_close(r, addr, "]");
    }
    if (r->rc != 0)
        obj_put_error(r, addr);
    else if (e.most != UINT64_MAX)
        obj_put_format(r, ", maxlen=%lu", e.most);
    obj_put(r, ")");
}
