/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pandas: a DataFrame's shape and its columns' names and types, a Series' values.
 *
 * Both have a manager, which has axes (indexes: the names) and blocks (columns of one type, and which ones these are). Managers and blocks are
 * compiled classes of unknown layout: their members are found by the type of what they point to. What is not as expected is left out.
 */
#include "object_render.h"

#define MAX_COLUMNS 20
#define MAX_BLOCKS  32
#define MAX_PLACES  256  /* columns of one block whose places are in an array */
#define MAX_SIZE    160u /* of an object that is searched */

enum part { BLOCKS, AXES, SLICE, ARRAY, PLACEMENT, CATEGORIES, ARROW, VALUES };

static bool is_part(struct render *r, uint64_t addr, enum part part) {
    struct object_type t;

    if (!pywalk_plausible(addr) || !obj_type_of(r, addr, &t)) {
        if (r->rc != -E2BIG)
            obj_error(r);
        return false;
    }
    switch (part) {
    case BLOCKS:
        return t.kind == KIND_TUPLE && t.exact;
    case AXES:
        return t.kind == KIND_LIST && t.exact;
    case SLICE:
        return t.kind == KIND_SLICE;
    case ARRAY:
        return t.kind == KIND_NDARRAY;
    case PLACEMENT:
        return strcmp(t.name, "pandas._libs.internals.BlockPlacement") == 0;
    case ARROW:
        return strcmp(t.name, "pyarrow.lib.ChunkedArray") == 0;
    case CATEGORIES:
        return strcmp(t.name, "CategoricalDtype") == 0;
    default: /* numpy's array, or one of pandas', whose class is in Python: its name has no dot */
        return t.kind == KIND_NDARRAY ||
               (t.kind == KIND_OBJECT && t.heap && strchr(t.name, '.') == NULL);
    }
}

/* Searches the object's own pointers for such a part; it is an error if there is none. */
static uint64_t find_part(struct render *r, uint64_t obj, enum part part) {
    struct object_type t;

    if (!obj_type_of(r, obj, &t))
        return 0;
    for (uint64_t at = r->f->ob_head; at + 8 <= (uint64_t)t.basicsize && at < MAX_SIZE; at += 8) {
        uint64_t value = obj_u64(r, obj + at);
        if (r->rc != 0 || is_part(r, value, part))
            return value;
    }
    obj_fail(r, -ENOENT);
    return 0;
}

static bool attribute(struct render *r, uint64_t obj, const char *name, uint64_t *value) {
    struct object_type t;

    return obj_type_of(r, obj, &t) && obj_attrs_find(r, obj, &t, name, value);
}

/* Finds a part of the manager, by name if it has attributes, else by type. */
static uint64_t manager_part(struct render *r, uint64_t manager, const char *name, enum part part) {
    uint64_t value;

    return attribute(r, manager, name, &value) && is_part(r, value, part)
               ? value
               : find_part(r, manager, part);
}

static uint32_t small(struct render *r, uint64_t at) {
    uint64_t number = obj_u64(r, at);

    return obj_expect(r, number, KIND_INT) ? obj_small_int(r, number) : 0;
}

/* Opens an index, or one of pandas' own arrays, as an array of one dimension; kind 'r': the numbers from `data` on, in steps of `stride`. */
static bool open_index(struct render *r, uint64_t index, struct array_view *v) {
    uint64_t data = 0;

    if (attribute(r, index, "_range", &data)) {
        uint64_t at = data + r->f->range_start; /* start, stop, step, length */
        if (obj_expect(r, data, KIND_RANGE))
            *v = (struct array_view){.data = small(r, at),
                                     .ndim = 1,
                                     .shape = {small(r, at + 24)},
                                     .stride = {small(r, at + 16)},
                                     .kind = 'r'};
        return r->rc == 0;
    }
    if (attribute(r, index, "_data", &data))
        index = data;
    if (attribute(r, index, "_pa_array", &data) || /* pandas 1: _data */
        is_part(r, attribute(r, index, "_data", &data) ? data : index, ARROW))
        return obj_arrow_open(r, is_part(r, data, ARROW) ? data : index, v);
    if (!obj_is(r, index, KIND_NDARRAY))
        index = find_part(r, index, ARRAY);
    return obj_array_open(r, index, v) && obj_ok(r, v->ndim >= 1);
}

/* Sets `values` for those of the n columns that lie in the block. */
static void read_block(struct render *r, uint64_t block, uint64_t *values, uint64_t n) {
    uint64_t place = find_part(r, block, PLACEMENT), its = find_part(r, block, VALUES), at, column;
    struct array_view v;

    if (r->rc != 0)
        return;
    at = find_part(r, place, SLICE);
    if (r->rc == 0) {
        uint32_t start = small(r, at + r->f->slice_start);
        uint32_t stop = small(r, at + r->f->slice_start + 8);
        uint32_t step = small(r, at + r->f->slice_start + 16);
        for (column = start; r->rc == 0 && step > 0 && column < stop && column < n; column += step)
            values[column] = its;
        return;
    }
    obj_error(r);
    if (obj_array_open(r, find_part(r, place, ARRAY), &v) && v.ndim == 1 && v.kind == 'i' &&
        v.size == 8) {
        for (int64_t i = 0; i < v.shape[0] && i < MAX_PLACES; i++) {
            column = obj_u64(r, v.data + i * v.stride[0]);
            if (obj_error(r) == 0 && column < n)
                values[column] = its;
        }
    }
}

/* Whether it is numpy's array, or one of pandas' around such an array and with its type and values. */
static bool is_plain(const struct object_type *t) {
    return t->kind == KIND_NDARRAY || strcmp(t->name, "DatetimeArray") == 0 ||
           strcmp(t->name, "TimedeltaArray") == 0;
}

/* Writes the type of a column: numpy's, or the class of pandas' own array. */
static void put_type(struct render *r, uint64_t values) {
    struct array_view v;
    struct object_type t;

    if (values == 0 || !obj_type_of(r, values, &t))
        obj_put(r, "?");
    else if (is_plain(&t) && open_index(r, values, &v))
        obj_put_dtype(r, &v, false);
    else
        obj_put_type(r, &t, false);
    obj_error(r);
}

static uint64_t item(struct render *r, uint64_t list, uint64_t i) {
    obj_ok(r, i < obj_count(r, list + r->f->ob_size));
    return obj_pointer(r, obj_u64(r, list + r->f->list_items) + i * 8);
}

static void put_index_element(struct render *r, const struct array_view *v, uint64_t i) {
    uint64_t at = v->data + i * v->stride[0];

    if (v->kind == 'A')
        obj_put_arrow(r, v, i);
    else if (v->kind == 'r')
        obj_put_format(r, "%lu", at);
    else
        obj_put_element(r, at, v);
}

static void put_frame(struct render *r, uint64_t blocks, uint64_t axes) {
    struct array_view names, rows;
    uint64_t count, block, values[MAX_COLUMNS] = {0};
    uint64_t limit = r->limit.items < MAX_COLUMNS ? r->limit.items : MAX_COLUMNS;

    count = obj_count(r, blocks + r->f->ob_size);
    if (!open_index(r, item(r, axes, 0), &names))
        return;
    if (open_index(r, item(r, axes, 1), &rows))
        obj_put_format(r, " shape=(%ld, %ld)", rows.shape[0], names.shape[0]);
    obj_error(r);
    for (uint64_t i = 0; i < count && i < MAX_BLOCKS && !r->full; i++) {
        block = obj_u64(r, blocks + r->f->tuple_items + i * 8);
        read_block(r, block, values, limit);
        obj_error(r);
    }
    for (uint64_t i = 0; i < (uint64_t)names.shape[0] && obj_next(r, i, limit, " columns: "); i++) {
        put_index_element(r, &names, i);
        obj_put(r, " ");
        put_type(r, values[i]);
    }
}

/* Writes what an array of numbers stands for: for a Categorical the categories (-1: none); for an array with a mask the values that are not masked. */
static void put_chosen(struct render *r, const struct array_view *v, const struct array_view *mask,
                       const struct array_view *categories) {
    for (int64_t i = 0; i < v->shape[0] && obj_next(r, i, r->limit.items, ": "); i++) {
        uint64_t at = v->data + i * v->stride[0], code = 0;
        bool none = mask != NULL && obj_u8(r, mask->data + i * mask->stride[0]) != 0;
        if (categories != NULL) {
            obj_get(r, at, &code, v->size);
            none = code >> (8 * v->size - 1) != 0;
            obj_ok(r, none || (int64_t)code < categories->shape[0]);
        }
        if (r->rc != 0)
            obj_put_error(r, at);
        else if (v->kind == 'A')
            obj_put_arrow(r, v, i);
        else if (none)
            obj_put(r, mask != NULL ? "<NA>" : "nan");
        else if (categories != NULL)
            put_index_element(r, categories, code);
        else
            obj_put_element(r, at, v);
    }
}

static void put_array_values(struct render *r, uint64_t values, const struct array_view *v) {
    struct array_view other;
    struct object_type t;
    uint64_t part;

    if (!obj_type_of(r, values, &t))
        return;
    if (v->kind == 'A') {
        put_chosen(r, v, NULL, NULL);
    } else if (is_plain(&t) || strcmp(t.name, "StringArray") == 0) {
        obj_put_values(r, v);
    } else if (v->ndim == 1 && strcmp(t.name, "Categorical") == 0 && v->kind == 'i' &&
               v->size <= 8) {
        if (attribute(r, find_part(r, values, CATEGORIES), "_categories", &part) &&
            open_index(r, part, &other))
            put_chosen(r, v, NULL, &other);
    } else if (v->ndim == 1 && attribute(r, values, "_mask", &part) &&
               obj_array_open(r, part, &other) && other.kind == 'b' && other.ndim == 1 &&
               other.shape[0] == v->shape[0]) {
        put_chosen(r, v, &other, NULL);
    }
}

static void put_series(struct render *r, uint64_t addr, const struct object_type *t,
                       uint64_t blocks) {
    struct array_view v;
    uint64_t name, values;
    bool open;

    if (obj_attrs_find(r, addr, t, "_name", &name) && !obj_is(r, name, KIND_NONE)) {
        obj_put(r, " name=");
        obj_render(r, name);
    }
    values = find_part(r, obj_u64(r, blocks + r->f->tuple_items), VALUES);
    if (r->rc != 0)
        return;
    open = open_index(r, values, &v);
    if (open) {
        obj_put(r, " shape=");
        obj_put_dims(r, &v);
    }
    obj_error(r);
    obj_put(r, " dtype=");
    put_type(r, values);
    if (open)
        put_array_values(r, values, &v);
}

bool obj_put_pandas(struct render *r, uint64_t addr, const struct object_type *t) {
    bool frame = obj_type_is(r, t, "pandas", "DataFrame");
    uint64_t manager, blocks, axes;

    if ((!frame && !obj_type_is(r, t, "pandas", "Series")) ||
        !obj_attrs_find(r, addr, t, "_mgr", &manager))
        return false;
    blocks = manager_part(r, manager, "blocks", BLOCKS);
    axes = manager_part(r, manager, "axes", AXES);
    if (obj_error(r) != 0)
        return false;
    obj_put_shape(r, "<%T", addr, t, NULL);
    if (!obj_enter(r, addr)) {
        obj_put(r, ": ...>");
        return true;
    }
    if (frame)
        put_frame(r, blocks, axes);
    else
        put_series(r, addr, t, blocks);
    obj_error(r); /* what is not as expected is left out */
    obj_leave(r);
    obj_put(r, ">");
    return true;
}
