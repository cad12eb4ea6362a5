/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pandas: a DataFrame's shape and its columns' names and types, a Series' values.
 *
 * Both have a manager, which has axes (indexes: the names) and blocks (columns of one type, and which ones these are).
 * Managers and blocks are compiled classes of unknown layout: their members are found by the type of what
 * they point to. What is not as expected is left out.
 */
#include "object_render.h"

#define MAX_COLUMNS 20
#define MAX_BLOCKS  32
#define MAX_PLACES  256  /* columns of one block whose places are in an array */
#define MAX_SIZE    160u /* of an object that is searched */

enum part { BLOCKS, AXES, SLICE, ARRAY, PLACEMENT, VALUES };

static bool is_part(const struct object_type *t, enum part part) {
    switch (part) {
    case BLOCKS:
        return t->kind == KIND_TUPLE && t->exact;
    case AXES:
        return t->kind == KIND_LIST && t->exact;
    case SLICE:
        return t->kind == KIND_SLICE;
    case ARRAY:
        return t->kind == KIND_NDARRAY;
    case PLACEMENT:
        return strcmp(t->name, "pandas._libs.internals.BlockPlacement") == 0;
    default: /* an array, or pandas' own, whose class is of Python: then its name has no dot */
        return t->kind == KIND_NDARRAY ||
               (t->kind == KIND_OBJECT && t->heap && strchr(t->name, '.') == NULL);
    }
}

static int find_part(struct render *r, uint64_t obj, enum part part, uint64_t *value) {
    struct object_type t, its;
    int rc = obj_type_of(r, obj, &t);

    for (uint64_t at = (uint64_t)r->f->ob_head;
         rc == 0 && at + 8 <= (uint64_t)t.basicsize && at < MAX_SIZE; at += 8) {
        rc = get_u64(r, obj + at, value);
        if (rc == 0 && pywalk_plausible(*value) && obj_type_of(r, *value, &its) == 0 &&
            is_part(&its, part))
            return 0;
    }
    return rc == 0 ? -ENOENT : rc;
}

/* By name where it has attributes; else by type. */
static int manager_part(struct render *r, uint64_t manager, const char *name, enum part part,
                        uint64_t *value) {
    struct object_type t, its;
    int rc = obj_type_of(r, manager, &t);

    if (rc == 0 && obj_attrs_find(r, manager, &t, name, value) == 0 &&
        obj_type_of(r, *value, &its) == 0 && is_part(&its, part))
        return 0;
    return rc == 0 ? find_part(r, manager, part, value) : rc;
}

static int small(struct render *r, uint64_t at, uint32_t *v) {
    struct object_type t;
    uint64_t number;
    int rc = get_u64(r, at, &number);

    if (rc == 0)
        rc = obj_type_of(r, number, &t);
    if (rc == 0)
        rc = t.kind == KIND_INT ? obj_get_small(r, number, v) : -EBADMSG;
    return rc;
}

/* An index, or pandas' own array: as an array of one dimension; size 0: the numbers from data on, in steps of stride. */
static int open_index(struct render *r, uint64_t index, struct array_view *v) {
    struct object_type t, its;
    uint64_t data;
    uint32_t start, step, length;
    int rc = obj_type_of(r, index, &t);

    if (rc == 0 && obj_attrs_find(r, index, &t, "_range", &data) == 0) {
        uint64_t at = data + (uint64_t)r->f->range_start; /* start, stop, step, length */
        rc = obj_type_of(r, data, &its);
        if (rc == 0 && its.kind != KIND_RANGE)
            rc = -EBADMSG;
        if (rc == 0 && (rc = small(r, at, &start)) == 0 && (rc = small(r, at + 16, &step)) == 0)
            rc = small(r, at + 24, &length);
        if (rc == 0)
            *v = (struct array_view){
                .data = start, .ndim = 1, .shape = {length}, .stride = {step}, .kind = 'r'};
        return rc;
    }
    if (rc == 0 && obj_attrs_find(r, index, &t, "_data", &data) == 0)
        index = data;
    if (rc == 0)
        rc = obj_type_of(r, index, &t);
    if (rc == 0 && t.kind != KIND_NDARRAY)
        rc = find_part(r, index, ARRAY, &index);
    if (rc == 0)
        rc = obj_array_open(r, index, v);
    return rc == 0 && v->ndim < 1 ? -EBADMSG : rc;
}

/* Sets the values of those of the n columns that the block has. */
static void read_block(struct render *r, uint64_t block, uint64_t *values, uint64_t n) {
    uint64_t place, its, at, column;
    uint32_t start, stop, step;
    struct array_view v = {.ndim = 0};

    if (find_part(r, block, PLACEMENT, &place) != 0 || find_part(r, block, VALUES, &its) != 0)
        return;
    if (find_part(r, place, SLICE, &at) == 0) {
        at += (uint64_t)r->f->slice_start;
        if (small(r, at, &start) == 0 && small(r, at + 8, &stop) == 0 &&
            small(r, at + 16, &step) == 0 && step > 0)
            for (column = start; column < stop && column < n; column += step)
                values[column] = its;
    } else if (find_part(r, place, ARRAY, &at) == 0 && obj_array_open(r, at, &v) == 0 &&
               v.ndim == 1 && v.kind == 'i' && v.size == 8) {
        for (int64_t i = 0; i < v.shape[0] && i < MAX_PLACES; i++)
            if (get_u64(r, v.data + (uint64_t)(i * v.stride[0]), &column) == 0 && column < n)
                values[column] = its;
    }
}

/* The type of a column: numpy's, or the class of pandas' own array. */
static void put_type(struct render *r, uint64_t values) {
    struct array_view v = {.ndim = 0};
    struct object_type t;

    if (values == 0 || obj_type_of(r, values, &t) != 0)
        obj_put(r, "?");
    else if ((t.kind == KIND_NDARRAY || strcmp(t.name, "DatetimeArray") == 0 ||
              strcmp(t.name, "TimedeltaArray") == 0) &&
             open_index(r, values, &v) == 0)
        obj_put_dtype(r, &v);
    else
        obj_put_type(r, &t, false);
}

static int item(struct render *r, uint64_t list, uint64_t i, uint64_t *value) {
    uint64_t count, items;
    int rc = obj_get_count(r, list + (uint64_t)r->f->ob_size, &count);

    if (rc == 0)
        rc = get_u64(r, list + (uint64_t)r->f->list_items, &items);
    if (rc == 0)
        rc = i < count ? obj_get_pointer(r, items + i * 8, value) : -ENOENT;
    return rc;
}

static void put_frame(struct render *r, uint64_t blocks, uint64_t axes) {
    struct array_view names = {.ndim = 0}, rows = {.ndim = 0};
    uint64_t index, columns, count, block, values[MAX_COLUMNS] = {0};
    uint64_t limit = r->limit.items < MAX_COLUMNS ? r->limit.items : MAX_COLUMNS;

    if (item(r, axes, 0, &columns) != 0 || open_index(r, columns, &names) != 0 ||
        obj_get_count(r, blocks + (uint64_t)r->f->ob_size, &count) != 0)
        return;
    if (item(r, axes, 1, &index) == 0 && open_index(r, index, &rows) == 0)
        obj_put_format(r, " shape=(%lld, %lld)", (long long)rows.shape[0],
                       (long long)names.shape[0]);
    for (uint64_t i = 0; i < count && i < MAX_BLOCKS && !r->full; i++)
        if (get_u64(r, blocks + (uint64_t)r->f->tuple_items + i * 8, &block) == 0)
            read_block(r, block, values, limit);
    for (uint64_t i = 0; i < (uint64_t)names.shape[0] && !r->full; i++) {
        uint64_t at = names.data + i * (uint64_t)names.stride[0];
        obj_put(r, i == 0 ? " columns: " : ", ");
        if (i == limit) {
            obj_put(r, "...");
            break;
        }
        if (names.kind == 'r')
            obj_put_format(r, "%llu", (unsigned long long)at);
        else
            obj_put_element(r, at, &names);
        obj_put(r, " ");
        put_type(r, values[i]);
    }
}

static void put_series(struct render *r, uint64_t addr, const struct object_type *t,
                       uint64_t blocks) {
    struct array_view v = {.ndim = 0};
    struct object_type its;
    uint64_t name, block, values;

    if (obj_attrs_find(r, addr, t, "_name", &name) == 0 && obj_type_of(r, name, &its) == 0 &&
        its.kind != KIND_NONE) {
        obj_put(r, " name=");
        obj_render(r, name);
    }
    if (get_u64(r, blocks + (uint64_t)r->f->tuple_items, &block) != 0 ||
        find_part(r, block, VALUES, &values) != 0)
        return;
    if (open_index(r, values, &v) == 0) {
        obj_put(r, " shape=");
        obj_put_shape(r, v.shape, v.ndim);
    }
    obj_put(r, " dtype=");
    put_type(r, values);
    /* a Categorical's numbers, and those of an array with a mask, are not its values */
    if (v.ndim > 0 && obj_type_of(r, values, &its) == 0 &&
        (its.kind == KIND_NDARRAY || strcmp(its.name, "DatetimeArray") == 0 ||
         strcmp(its.name, "TimedeltaArray") == 0 || strcmp(its.name, "StringArray") == 0))
        obj_put_values(r, &v);
}

bool obj_put_pandas(struct render *r, uint64_t addr, const struct object_type *t) {
    bool frame = obj_type_is(r, t, "pandas", "DataFrame");
    uint64_t manager, blocks, axes;

    if ((!frame && !obj_type_is(r, t, "pandas", "Series")) ||
        obj_attrs_find(r, addr, t, "_mgr", &manager) != 0 ||
        manager_part(r, manager, "blocks", BLOCKS, &blocks) != 0 ||
        manager_part(r, manager, "axes", AXES, &axes) != 0)
        return false;
    obj_put(r, "<");
    obj_put_type(r, t, true);
    if (!obj_enter(r, addr)) {
        obj_put(r, ": ...>");
        return true;
    }
    if (frame)
        put_frame(r, blocks, axes);
    else
        put_series(r, addr, t, blocks);
    obj_leave(r);
    obj_put(r, ">");
    return true;
}
