/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's arrays and scalars, and the first values of any strided array. */
#include "object_render.h"

#include <stdlib.h>

#include "traces/float16.h"

struct numpy_fields {
    int32_t major; /* of numpy's version */
    int32_t array_data, array_ndim, array_shape, array_strides, array_descr, scalar_value;
    int32_t descr_kind, descr_order, descr_elsize, descr_alignment, descr_width;
    int32_t descr_subarray, subarray_base, subarray_shape;
    int32_t descr_fields, descr_names, descr_metadata, metadata_unit;
    int32_t scalar_unit, void_value, void_descr;
};
static const struct numpy_fields layouts[] = {
#include "numpy_table.inc"
};
#define LAYOUTS (sizeof layouts / sizeof *layouts)

/* ---- values ---------------------------------------------------------------------------------- */

/* Converts a float of `size` bytes at p, where 16 can be read; sets *mantissa to the bits of its significand. */
static double real(const uint8_t *p, uint32_t size, int *mantissa) {
    union {
        uint16_t half;
        float single;
        double real;
        long double x87;
    } v;

    memcpy(&v, p, sizeof v);
    *mantissa = size == 2 ? 11 : size == 4 ? 24 : 53;
    return size == 2   ? float16_value(v.half)
           : size == 4 ? (double)v.single
           : size == 8 ? v.real
                       : (double)v.x87;
}

static void swap(uint8_t *p, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; i++) {
        uint8_t c = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = c;
    }
}

/* Writes text of a fixed width that is padded with NULs. */
static void put_fixed(struct render *r, uint64_t data, char kind, uint32_t size) {
    uint32_t unit = kind == 'U' ? 4 : 1, length = size / unit, last = 0, c;

    for (uint32_t i = 0; i < length && i < r->limit.string; i++) {
        c = 0;
        obj_get(r, data + i * unit, &c, unit);
        last = c != 0 ? i + 1 : last;
    }
    obj_error(r);
    obj_put_characters(r, data, last, unit);
}

void obj_put_dims(struct render *r, const struct array_view *v) {
    obj_put(r, "(");
    for (int i = 0; i < v->ndim; i++)
        obj_put_format(r, i > 0 ? ", %ld" : "%ld", v->shape[i]);
    obj_put(r, v->ndim == 1 ? ",)" : ")");
}

void obj_put_values(struct render *r, const struct array_view *v) {
    int64_t index[ARRAY_DIMS] = {0};
    uint64_t count = 1, at = v->data;

    for (int d = 0; d < v->ndim; d++)
        if (__builtin_mul_overflow(count, (uint64_t)v->shape[d], &count))
            return;
    for (uint64_t i = 0; i < count && obj_next(r, i, r->limit.items, ": "); i++) {
        obj_put_element(r, at, v);
        for (int d = v->ndim - 1; d >= 0; d--) {
            at += (uint64_t)v->stride[d];
            if (++index[d] < v->shape[d])
                break;
            at -= (uint64_t)v->stride[d] * (uint64_t)v->shape[d];
            index[d] = 0;
        }
    }
}

/* ---- numpy ------------------------------------------------------------------------------------ */

static int64_t number(const uint8_t *p, int32_t width) {
    return width == 8 ? (int64_t)load64(p) : (int64_t)(int32_t)load32(p);
}

static void read_unit(struct render *r, uint64_t at, struct array_view *v) {
    int32_t unit[2]; /* which unit, and how many of it */

    obj_get(r, at, unit, sizeof unit);
    v->unit = unit[0];
    v->per = unit[1];
    obj_error(r);
}

/* Whether an element of this kind can have this size. */
static bool fits(char kind, int64_t size) {
    switch (kind) {
    case 'b':
        return size == 1;
    case 'i':
    case 'u':
    case 'f':
        return size > 0 && size <= 16 && (size & (size - 1)) == 0;
    case 'c':
        return size == 8 || size == 16 || size == 32;
    case 'O':
    case 'M':
    case 'm':
        return size == 8;
    default:
        return kind != '\0' && strchr("SUVT", kind) != NULL;
    }
}

/* Reads what a dtype says about its elements. The alignment, a small power of two, tells the layouts apart: where numpy 2 has it
 * numpy 1 has a pointer, and where numpy 1 has it numpy 2 has the upper half of its flags. */
static bool read_descr(struct render *r, uint64_t descr, struct array_view *v) {
    uint8_t bytes[96];

    obj_ok(r, pywalk_plausible(descr));
    for (size_t i = LAYOUTS; i-- > 0;) {
        const struct numpy_fields *l = &layouts[i];
        size_t need = l->descr_alignment + l->descr_width;
        int64_t alignment, size;

        if (!obj_ok(r, need <= sizeof bytes) || !obj_get(r, descr, bytes, need))
            return false;
        alignment = number(bytes + l->descr_alignment, l->descr_width);
        size = number(bytes + l->descr_elsize, l->descr_width);
        if (alignment <= 0 || alignment > 64 || (alignment & (alignment - 1)) != 0 || size < 0 ||
            size > 1 << 30)
            continue;
        v->kind = (char)bytes[l->descr_kind];
        v->kind = v->kind == 'f' && size == 1 ? 'V' : v->kind; /* float8_e5m2 of ml_dtypes */
        v->swapped = bytes[l->descr_order] == '>';
        v->size = (uint32_t)size;
        if (!obj_ok(r, fits(v->kind, size)))
            return false;
        if (v->kind == 'V') {
            v->subarray = obj_pointer(r, descr + l->descr_subarray);
            v->fields = obj_pointer(r, descr + l->descr_fields);
            v->names = obj_pointer(r, descr + l->descr_names);
            if (obj_error(r) != 0 || v->fields == 0)
                v->names = 0;
        } else if (v->kind == 'M' || v->kind == 'm') {
            read_unit(r, obj_u64(r, descr + l->descr_metadata) + l->metadata_unit, v);
        }
        return true;
    }
    return obj_ok(r, false);
}

static void put_dtype_name(struct render *r, const struct array_view *v) {
    static const struct {
        char kind;
        const char *name;
        uint32_t bits; /* for each byte; 0: not shown */
    } names[] = {
        {'b', "bool", 0},    {'i', "int", 8},    {'u', "uint", 8},       {'f', "float", 8},
        {'c', "complex", 8}, {'O', "object", 0}, {'M', "datetime64", 0}, {'m', "timedelta64", 0},
        {'T', "string", 0},  {'V', "void", 8},
    };
    for (size_t i = 0; !v->swapped && i < sizeof names / sizeof *names; i++)
        if (names[i].kind == v->kind) {
            obj_put(r, names[i].name);
            if (names[i].bits != 0)
                obj_put_format(r, "%u", v->size * names[i].bits);
            if ((v->kind == 'M' || v->kind == 'm') && obj_has_unit(v)) {
                obj_put(r, "[");
                obj_put_unit(r, v);
                obj_put(r, "]");
            }
            return;
        }
    obj_put_format(r, "%s%c%u", v->swapped ? ">" : "", v->kind,
                   v->kind == 'U' ? v->size / 4 : v->size);
}

/* Opens the array in each element: in C order, without gaps. */
static bool open_subarray(struct render *r, const struct array_view *v, struct array_view *in) {
    const struct numpy_fields *l = &layouts[0];
    uint64_t base = obj_pointer(r, v->subarray + l->subarray_base), count, size;
    uint64_t shape = obj_tuple(r, obj_pointer(r, v->subarray + l->subarray_shape), &count);

    *in = (struct array_view){.ndim = (int)count};
    if (!obj_ok(r, count <= ARRAY_DIMS) || !read_descr(r, base, in))
        return false;
    size = in->size;
    for (int i = in->ndim - 1; i >= 0 && obj_ok(r, size <= 1 << 30); i--) {
        in->shape[i] = obj_small_int(r, obj_pointer(r, shape + i * 8));
        in->stride[i] = size;
        size *= in->shape[i];
    }
    return obj_ok(r, size == v->size);
}

static void put_nested(struct render *r, uint64_t data, const struct array_view *v, int dim) {
    if (dim == v->ndim) {
        obj_put_element(r, data, v);
        return;
    }
    obj_put(r, "[");
    for (int64_t i = 0; obj_more(r, i, v->shape[dim]); i++)
        put_nested(r, data + i * v->stride[dim], v, dim + 1);
    obj_put(r, "]");
}

static void put_subarray(struct render *r, uint64_t data, const struct array_view *v) {
    struct array_view in;

    if (!open_subarray(r, v, &in)) {
        obj_put_error(r, v->subarray);
    } else if (!obj_enter(r, v->subarray)) {
        obj_put(r, "[...]");
    } else {
        put_nested(r, data, &in, 0);
        obj_leave(r);
    }
}

/* Gets the next field's dtype and its offset in the record. */
static bool next_field(struct render *r, struct dict_iter *it, uint64_t name,
                       struct array_view *field, uint32_t *offset) {
    uint64_t key, value, part, count;

    do /* a title is a key as well */
        obj_ok(r, obj_dict_next(r, it, &key, &value));
    while (r->rc == 0 && key != name);
    if (r->rc != 0)
        return false;
    part = obj_tuple(r, value, &count);
    read_descr(r, obj_u64(r, part), field);
    *offset = obj_small_int(r, obj_pointer(r, part + 8));
    return r->rc == 0;
}

/* Writes the fields of a structured type: (1, 2.5), or without data [('x', 'int32'), ('y', 'float64')]. */
static void put_record(struct render *r, uint64_t data, const struct array_view *v) {
    struct dict_iter it;
    uint64_t count, name, names = obj_tuple(r, v->names, &count);
    uint32_t offset;

    obj_put(r, data != 0 ? "(" : "[");
    if (obj_dict_open(r, v->fields, &it) && !obj_enter(r, v->names)) {
        obj_put(r, "...");
    } else if (r->rc == 0) {
        for (uint64_t i = 0; obj_more(r, i, count); i++) {
            struct array_view field = {.ndim = 0};
            name = obj_u64(r, names + i * 8);
            if (!next_field(r, &it, name, &field, &offset))
                break;
            if (data != 0) {
                obj_put_element(r, data + offset, &field);
            } else {
                obj_put(r, "(");
                obj_render(r, name);
                obj_put(r, ", ");
                obj_put_dtype(r, &field, true);
                obj_put(r, ")");
            }
        }
        obj_leave(r);
    }
    obj_put_error(r, v->names);
    obj_put(r, data == 0 ? "]" : count == 1 ? ",)" : ")");
}

void obj_put_dtype(struct render *r, const struct array_view *v, bool quoted) {
    struct array_view in;

    if (v->kind == 'V' && v->names != 0) {
        put_record(r, 0, v);
    } else if (v->kind == 'V' && v->subarray != 0 && open_subarray(r, v, &in) &&
               obj_enter(r, v->subarray)) { /* "'int32', (2,)" */
        obj_put_dtype(r, &in, quoted);
        obj_put(r, ", ");
        obj_put_dims(r, &in);
        obj_leave(r);
    } else {
        obj_error(r);
        obj_put(r, quoted ? "'" : "");
        put_dtype_name(r, v);
        obj_put(r, quoted ? "'" : "");
    }
}

void obj_put_element(struct render *r, uint64_t data, const struct array_view *v) {
    uint8_t bytes[32] = {0};
    uint64_t word = 0;
    int mantissa = 53;

    if (v->kind == 'S' || v->kind == 'U') {
        put_fixed(r, data, v->kind, v->size);
        return;
    }
    if (v->kind == 'V' && (v->names != 0 || v->subarray != 0)) {
        (v->names != 0 ? put_record : put_subarray)(r, data, v);
        return;
    }
    if (v->size == 0 || v->size > sizeof bytes) {
        obj_put(r, "?");
        return;
    }
    if (!obj_get(r, data, bytes, v->size)) {
        obj_put_error(r, data);
        return;
    }
    if (v->swapped && v->kind == 'c') {
        swap(bytes, v->size / 2);
        swap(bytes + v->size / 2, v->size / 2);
    } else if (v->swapped) {
        swap(bytes, v->size);
    }
    memcpy(&word, bytes, v->size < 8 ? v->size : 8);
    switch (v->kind) {
    case 'b':
        obj_put(r, word == 1 ? "True" : word == 0 ? "False" : "<corrupt bool>");
        break;
    case 'u':
        obj_put_format(r, "%lu", word);
        break;
    case 'M':
    case 'm':
        obj_put_time64(r, (int64_t)word, v);
        break;
    case 'i':
        if (v->size < 8)
            word = (uint64_t)((int64_t)(word << (64 - 8 * v->size)) >> (64 - 8 * v->size));
        obj_put_format(r, "%ld", word);
        break;
    case 'f': {
        double d = real(bytes, v->size, &mantissa);
        obj_put_float(r, d, mantissa, true);
        break;
    }
    case 'B':
        obj_put_float(r, bfloat16_value((uint16_t)word), 8, true);
        break;
    case 'c': {
        double re = real(bytes, v->size / 2, &mantissa);
        obj_put_complex(r, re, real(bytes + v->size / 2, v->size / 2, &mantissa), mantissa);
        break;
    }
    case 'O':
        if (obj_ok(r, word == 0 || pywalk_plausible(word)))
            obj_render(r, word);
        obj_put_error(r, data);
        break;
    default:
        obj_put(r, "?");
    }
}

bool obj_array_open(struct render *r, uint64_t addr, struct array_view *v) {
    const struct numpy_fields *l = &layouts[0]; /* arrays are the same in all layouts */
    uint64_t shape = obj_u64(r, addr + l->array_shape),
             stride = obj_u64(r, addr + l->array_strides);

    *v = (struct array_view){.data = obj_u64(r, addr + l->array_data),
                             .ndim = (int32_t)obj_u32(r, addr + l->array_ndim)};
    if (!obj_ok(r, v->ndim >= 0 && v->ndim <= ARRAY_DIMS &&
                       (v->ndim == 0 || (pywalk_plausible(shape) && pywalk_plausible(stride)))) ||
        !read_descr(r, obj_u64(r, addr + l->array_descr), v))
        return false;
    if (v->ndim > 0) {
        obj_get(r, shape, v->shape, v->ndim * sizeof *v->shape);
        obj_get(r, stride, v->stride, v->ndim * sizeof *v->stride);
    }
    for (int i = 0; i < v->ndim; i++)
        obj_ok(r, v->shape[i] >= 0 && v->shape[i] <= 1ll << 46);
    return r->rc == 0;
}

void obj_put_ndarray(struct render *r, uint64_t addr, const struct object_type *t) {
    struct array_view v;
    uint64_t mask;

    if (!obj_array_open(r, addr, &v)) {
        obj_error(r);
        obj_put_shape(r, "<%T at %@>", addr, t, NULL);
        return;
    }
    obj_put_shape(r, "<%T shape=", addr, t, NULL);
    obj_put_dims(r, &v);
    obj_put(r, " dtype=");
    obj_put_dtype(r, &v, false);
    /* an array of numpy.ma: what its mask hides is no value */
    if (t->heap && obj_attrs_find(r, addr, t, "_mask", &mask))
        obj_put_shape(r, " mask=%o", addr, t, &mask);
    if (!obj_enter(r, addr)) {
        obj_put(r, ": ...>");
        return;
    }
    if ((v.kind != 'V' || v.names != 0) && v.kind != 'T')
        obj_put_values(r, &v);
    obj_put(r, ">");
    obj_leave(r);
}

/* Sets the type of a scalar called "numpy.float32" or the like; false: no scalar has this name. */
static bool scalar_of_name(const char *name, struct array_view *v) {
    static const struct {
        const char *name;
        char kind;
        uint32_t size; /* 0: the number of bits follows the name */
    } scalars[] = {
        {"bool", 'b', 1},        {"bool_", 'b', 1},    {"longlong", 'i', 8},
        {"ulonglong", 'u', 8},   {"int", 'i', 0},      {"uint", 'u', 0},
        {"float", 'f', 0},       {"complex", 'c', 0},  {"clongdouble", 'c', 32},
        {"longdouble", 'f', 16}, {"datetime", 'M', 0}, {"timedelta", 'm', 0},
    };

    name = obj_short(name);
    const char *bits = name + strcspn(name, "0123456789");
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (strncmp(name, scalars[i].name, bits - name) == 0 &&
            scalars[i].name[bits - name] == '\0' && (scalars[i].size == 0) == (*bits != '\0')) {
            v->kind = scalars[i].kind;
            v->size = scalars[i].size != 0 ? scalars[i].size : strtoul(bits, NULL, 10) / 8;
            return fits(v->kind, v->size);
        }
    return false;
}

void obj_put_numpy_scalar(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct numpy_fields *l = &layouts[0];
    uint64_t data = addr + l->scalar_value;
    struct array_view v = {.ndim = 0};
    bool known = scalar_of_name(t->native, &v);

    if (!known && strncmp(t->native, "numpy.dtype", 11) == 0 && read_descr(r, addr, &v)) {
        obj_put(r, "dtype(");
        obj_put_dtype(r, &v, true);
        obj_put(r, ")");
        return;
    }
    if (!known && strcmp(t->native, "numpy.void") == 0) {
        data = obj_u64(r, addr + l->void_value);
        known = read_descr(r, obj_u64(r, addr + l->void_descr), &v) && v.names != 0 &&
                data >= PYWALK_PAGE;
    }
    obj_error(r);
    if (!known) {
        obj_put_instance(r, addr, t);
        return;
    }
    obj_put_shape(r, "%T(", addr, t, NULL);
    if (v.kind == 'M' || v.kind == 'm')
        read_unit(r, addr + l->scalar_unit, &v);
    const char *quote = v.kind == 'M' && obj_has_unit(&v) ? "'" : "";
    obj_put(r, quote);
    obj_put_element(r, data, &v);
    obj_put(r, quote);
    if (v.kind == 'm' && obj_has_unit(&v)) {
        obj_put(r, ",'");
        obj_put_unit(r, &v);
        obj_put(r, "'");
    }
    obj_put(r, ")");
}
