/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's arrays and scalars, and the first values of any strided array. */
#include "object_render.h"

#include <math.h>
#include <stdio.h>

#define MAX_DIMS 64 /* numpy's own limit (32 before numpy 2) */

struct numpy_fields {
    int32_t major; /* of numpy's version */
    int32_t array_data, array_ndim, array_shape, array_strides, array_descr, scalar_value;
    int32_t descr_kind, descr_order, descr_elsize, descr_alignment, descr_width;
    int32_t descr_fields, descr_names, descr_metadata, metadata_unit;
    int32_t scalar_unit, void_value, void_descr;
};
static const struct numpy_fields layouts[] = {
#include "numpy_table.inc"
};
#define LAYOUTS (sizeof layouts / sizeof *layouts)

/* ---- values ---------------------------------------------------------------------------------- */

static double half(uint16_t h) {
    int exponent = h >> 10 & 31;
    double v = exponent == 31  ? ((h & 1023) != 0 ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(h & 1023, -24)
                               : ldexp((h & 1023) + 1024, exponent - 25);

    return (h & 0x8000) != 0 ? -v : v;
}

/* A float of that many bytes; *mantissa says how exact it is. */
static double real(const uint8_t *p, uint32_t size, int *mantissa) {
    double d = 0;
    float s;
    long double x;
    uint16_t h;

    switch (size) {
    case 2:
        memcpy(&h, p, 2);
        *mantissa = 11;
        return half(h);
    case 4:
        memcpy(&s, p, 4);
        *mantissa = 24;
        return s;
    case 8:
        memcpy(&d, p, 8);
        *mantissa = 53;
        return d;
    default: /* the x87's */
        memcpy(&x, p, sizeof x);
        *mantissa = 53;
        return (double)x;
    }
}

static void swap(uint8_t *p, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; i++) {
        uint8_t c = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = c;
    }
}

/* Text of a fixed width, filled up with NULs. */
static void put_fixed(struct render *r, uint64_t data, char kind, uint32_t size) {
    uint8_t c[4];
    uint32_t unit = kind == 'U' ? 4 : 1, length = size / unit, last = 0;

    if (length > r->limit.string)
        length = r->limit.string;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t v = 0;
        if (get(r, data + i * unit, c, unit) != 0)
            break;
        memcpy(&v, c, unit);
        if (v != 0)
            last = i + 1;
    }
    if (kind == 'S') {
        obj_put_binary(r, data, last);
        return;
    }
    obj_put(r, "'");
    for (uint32_t i = 0; i < last && !r->full; i++) {
        uint32_t v = 0;
        if (get(r, data + i * unit, &v, unit) != 0)
            break;
        if (v < 0x20 || (v >= 0x7f && v < 0xa0) || (v >= 0xd800 && v < 0xe000) || v > 0x10ffff)
            obj_put_format(r, "\\u%04x", v);
        else {
            if (v == '\'' || v == '\\')
                obj_put(r, "\\");
            obj_put_utf8(r, v);
        }
    }
    obj_put(r, "'");
}

static void put_record(struct render *r, uint64_t data, const struct array_view *v);

void obj_put_element(struct render *r, uint64_t data, const struct array_view *v) {
    uint8_t bytes[32] = {0};
    uint64_t word = 0;
    uint32_t bits;
    float f;
    int mantissa = 53, rc;

    if (v->kind == 'S' || v->kind == 'U') {
        put_fixed(r, data, v->kind, v->size);
        return;
    }
    if (v->kind == 'V' && v->names != 0) {
        put_record(r, data, v);
        return;
    }
    if (v->size == 0 || v->size > sizeof bytes) {
        obj_put(r, "?");
        return;
    }
    rc = get(r, data, bytes, v->size);
    if (rc != 0) {
        obj_put_error(r, rc, data);
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
        obj_put_format(r, "%llu", (unsigned long long)word);
        break;
    case 'M':
    case 'm':
        obj_put_time64(r, (int64_t)word, v);
        break;
    case 'i':
        if (v->size < 8)
            word = (uint64_t)((int64_t)(word << (64 - 8 * v->size)) >> (64 - 8 * v->size));
        obj_put_format(r, "%lld", (long long)word);
        break;
    case 'f': {
        double d = real(bytes, v->size, &mantissa);
        obj_put_float(r, d, mantissa, true);
        break;
    }
    case 'B':
        bits = (uint32_t)word << 16;
        memcpy(&f, &bits, sizeof f);
        obj_put_float(r, (double)f, 8, true);
        break;
    case 'c': {
        double re = real(bytes, v->size / 2, &mantissa);
        obj_put_complex(r, re, real(bytes + v->size / 2, v->size / 2, &mantissa), mantissa);
        break;
    }
    case 'O':
        if (word != 0 && !pywalk_plausible(word))
            obj_put_error(r, -EBADMSG, data);
        else
            obj_render(r, word);
        break;
    default:
        obj_put(r, "?");
    }
}

void obj_put_shape(struct render *r, const int64_t *shape, int ndim) {
    obj_put(r, "(");
    for (int i = 0; i < ndim; i++)
        obj_put_format(r, i > 0 ? ", %lld" : "%lld", (long long)shape[i]);
    obj_put(r, ndim == 1 ? ",)" : ")");
}

/* ": first, second, ..." in the order of the indices, the last one fastest. */
void obj_put_values(struct render *r, const struct array_view *v) {
    int64_t index[MAX_DIMS] = {0};
    uint64_t count = 1, at = v->data;

    for (int d = 0; d < v->ndim; d++)
        if (__builtin_mul_overflow(count, (uint64_t)v->shape[d], &count))
            return;
    for (uint64_t i = 0; i < count && !r->full; i++) {
        obj_put(r, i > 0 ? ", " : ": ");
        if (i == r->limit.items) {
            obj_put(r, "...");
            break;
        }
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
    int32_t unit[2]; /* which, and how many of it */

    if (get(r, at, unit, sizeof unit) == 0) {
        v->unit = unit[0];
        v->per = unit[1];
    }
}

/* What a dtype says of its elements. In numpy 1 there is a pointer where numpy 2 has the alignment, which is a small
 * power of two; what numpy 1 has for its alignment is, in numpy 2, the upper half of its flags. */
static int read_descr(struct render *r, uint64_t descr, struct array_view *v) {
    uint8_t bytes[96];
    uint64_t metadata;
    int rc;

    if (!pywalk_plausible(descr))
        return -EBADMSG;
    for (size_t i = LAYOUTS; i-- > 0;) {
        const struct numpy_fields *l = &layouts[i];
        size_t need = (size_t)(l->descr_alignment + l->descr_width);
        int64_t alignment, size;

        if (need > sizeof bytes)
            return -EBADMSG;
        rc = get(r, descr, bytes, need);
        if (rc != 0)
            return rc;
        alignment = number(bytes + l->descr_alignment, l->descr_width);
        size = number(bytes + l->descr_elsize, l->descr_width);
        if (alignment <= 0 || alignment > 64 || (alignment & (alignment - 1)) != 0 || size < 0 ||
            size > 1 << 30)
            continue;
        v->kind = (char)bytes[l->descr_kind];
        v->swapped = bytes[l->descr_order] == '>';
        v->size = (uint32_t)size;
        if (strchr("biufcSUVOMmT", v->kind) == NULL || v->kind == '\0')
            return -EBADMSG;
        if ((strchr("iuf", v->kind) != NULL &&
             (size == 0 || size > 16 || (size & (size - 1)) != 0)) ||
            (v->kind == 'b' && size != 1) ||
            (v->kind == 'c' && size != 8 && size != 16 && size != 32) ||
            (strchr("OMm", v->kind) != NULL && size != 8))
            return -EBADMSG;
        if (v->kind == 'V' &&
            (obj_get_pointer(r, descr + (uint64_t)l->descr_fields, &v->fields) != 0 ||
             obj_get_pointer(r, descr + (uint64_t)l->descr_names, &v->names) != 0 ||
             v->fields == 0))
            v->names = 0;
        if ((v->kind == 'M' || v->kind == 'm') &&
            get_u64(r, descr + (uint64_t)l->descr_metadata, &metadata) == 0)
            read_unit(r, metadata + (uint64_t)l->metadata_unit, v);
        return 0;
    }
    return -EBADMSG;
}

static void put_dtype_name(struct render *r, const struct array_view *v) {
    static const struct {
        char kind;
        const char *name;
        uint32_t bits; /* for each byte; 0: not told */
    } names[] = {
        {'b', "bool", 0},    {'i', "int", 8},    {'u', "uint", 8},       {'f', "float", 8},
        {'c', "complex", 8}, {'O', "object", 0}, {'M', "datetime64", 0}, {'m', "timedelta64", 0},
        {'T', "string", 0},  {'V', "void", 8},
    };
    if (v->swapped) {
        obj_put_format(r, ">%c%u", v->kind, v->kind == 'U' ? v->size / 4 : v->size);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
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
    obj_put_format(r, "%c%u", v->kind, v->kind == 'U' ? v->size / 4 : v->size);
}

/* As numpy's str() has it, but that fields have names of types; within other text in quotes. */
static void put_dtype(struct render *r, const struct array_view *v, bool quoted) {
    if (v->kind == 'V' && v->names != 0) {
        put_record(r, 0, v);
        return;
    }
    obj_put(r, quoted ? "'" : "");
    put_dtype_name(r, v);
    obj_put(r, quoted ? "'" : "");
}

/* The next field's dtype and its place in the record. */
static int next_field(struct render *r, struct dict_iter *it, uint64_t name,
                      struct array_view *field, uint32_t *offset) {
    uint64_t key, value, part[2];
    struct object_type t;
    int rc;

    do /* a title is a key as well */
        rc = obj_dict_next(r, it, &key, &value);
    while (rc == 1 && key != name);
    if (rc != 1)
        return rc == 0 ? -EBADMSG : rc;
    rc = obj_type_of(r, value, &t);
    if (rc == 0)
        rc = t.kind == KIND_TUPLE ? get(r, value + (uint64_t)r->f->tuple_items, part, sizeof part)
                                  : -EBADMSG;
    if (rc == 0)
        rc = read_descr(r, part[0], field);
    if (rc == 0)
        rc = pywalk_plausible(part[1]) ? obj_get_small(r, part[1], offset) : -EBADMSG;
    return rc;
}

/* The fields of a structured type: (1, 2.5), or without data [('x', 'int32'), ('y', 'float64')]. */
static void put_record(struct render *r, uint64_t data, const struct array_view *v) {
    struct object_type t;
    struct dict_iter it;
    uint64_t count = 0, name;
    uint32_t offset;
    int rc = obj_type_of(r, v->names, &t);

    obj_put(r, data != 0 ? "(" : "[");
    if (rc == 0)
        rc = t.kind == KIND_TUPLE ? obj_get_count(r, v->names + (uint64_t)r->f->ob_size, &count)
                                  : -EBADMSG;
    if (rc == 0)
        rc = obj_dict_open(r, v->fields, &it);
    if (rc == 0 && !obj_enter(r, v->names)) {
        obj_put(r, "...");
    } else if (rc == 0) {
        for (uint64_t i = 0; rc == 0 && obj_more(r, i, count); i++) {
            struct array_view field = {.ndim = 0};
            rc = get_u64(r, v->names + (uint64_t)r->f->tuple_items + i * 8, &name);
            if (rc == 0)
                rc = next_field(r, &it, name, &field, &offset);
            if (rc == 0 && data != 0) {
                obj_put_element(r, data + offset, &field);
            } else if (rc == 0) {
                obj_put(r, "(");
                obj_put_str(r, name);
                obj_put(r, ", ");
                put_dtype(r, &field, true);
                obj_put(r, ")");
            }
        }
        obj_leave(r);
    }
    if (rc != 0)
        obj_put_error(r, rc, v->names);
    obj_put(r, data == 0 ? "]" : count == 1 ? ",)" : ")");
}

void obj_put_dtype(struct render *r, const struct array_view *v) {
    put_dtype(r, v, false);
}

int obj_array_open(struct render *r, uint64_t addr, struct array_view *v) {
    const struct numpy_fields *l = &layouts[0]; /* arrays are the same in both */
    uint8_t bytes[128];
    uint64_t shape = 0, stride = 0;
    int rc;

    rc = l->array_descr + 8 <= (int)sizeof bytes ? get(r, addr, bytes, (size_t)l->array_descr + 8)
                                                 : -EBADMSG;
    if (rc == 0) {
        v->data = load64(bytes + l->array_data);
        v->ndim = (int32_t)load32(bytes + l->array_ndim);
        shape = load64(bytes + l->array_shape);
        stride = load64(bytes + l->array_strides);
        if (v->ndim < 0 || v->ndim > MAX_DIMS)
            rc = -EBADMSG;
        else if (v->ndim > 0 && (!pywalk_plausible(shape) || !pywalk_plausible(stride)))
            rc = -EBADMSG;
    }
    if (rc == 0)
        rc = read_descr(r, load64(bytes + l->array_descr), v);
    if (rc == 0 && v->ndim > 0)
        rc = get(r, shape, v->shape, (size_t)v->ndim * 8);
    if (rc == 0 && v->ndim > 0)
        rc = get(r, stride, v->stride, (size_t)v->ndim * 8);
    for (int i = 0; rc == 0 && i < v->ndim; i++)
        if (v->shape[i] < 0 || v->shape[i] > 1ll << 46)
            rc = -EBADMSG;
    return rc;
}

void obj_put_ndarray(struct render *r, uint64_t addr, const struct object_type *t) {
    struct array_view v = {.ndim = 0};
    int rc = obj_array_open(r, addr, &v);

    obj_put(r, "<");
    obj_put_type(r, t, true);
    if (rc != 0) {
        obj_put_format(r, " at 0x%llx>", (unsigned long long)addr);
        return;
    }
    obj_put(r, " shape=");
    obj_put_shape(r, v.shape, v.ndim);
    obj_put(r, " dtype=");
    put_dtype(r, &v, false);
    if (!obj_enter(r, addr)) {
        obj_put(r, ": ...>");
        return;
    }
    if ((v.kind != 'V' || v.names != 0) && v.kind != 'T')
        obj_put_values(r, &v);
    obj_put(r, ">");
    obj_leave(r);
}

void obj_put_numpy_scalar(struct render *r, uint64_t addr, const struct object_type *t) {
    static const struct {
        const char *name;
        char kind;
        uint32_t size;
    } scalars[] = {
        {"numpy.bool_", 'b', 1},        {"numpy.bool", 'b', 1},
        {"numpy.int8", 'i', 1},         {"numpy.int16", 'i', 2},
        {"numpy.int32", 'i', 4},        {"numpy.int64", 'i', 8},
        {"numpy.longlong", 'i', 8},     {"numpy.uint8", 'u', 1},
        {"numpy.uint16", 'u', 2},       {"numpy.uint32", 'u', 4},
        {"numpy.uint64", 'u', 8},       {"numpy.ulonglong", 'u', 8},
        {"numpy.float16", 'f', 2},      {"numpy.float32", 'f', 4},
        {"numpy.float64", 'f', 8},      {"numpy.float128", 'f', 16},
        {"numpy.longdouble", 'f', 16},  {"numpy.complex64", 'c', 8},
        {"numpy.complex128", 'c', 16},  {"numpy.complex256", 'c', 32},
        {"numpy.clongdouble", 'c', 32}, {"numpy.datetime64", 'M', 8},
        {"numpy.timedelta64", 'm', 8},
    };
    struct array_view v = {.ndim = 0};
    uint64_t data = addr + (uint64_t)layouts[0].scalar_value, descr;
    const char *quote;

    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (strcmp(scalars[i].name, t->native) == 0) {
            v.kind = scalars[i].kind;
            v.size = scalars[i].size;
        }
    if (v.size == 0 && strncmp(t->native, "numpy.dtype", 11) == 0 && read_descr(r, addr, &v) == 0) {
        obj_put(r, "dtype(");
        put_dtype(r, &v, true);
        obj_put(r, ")");
        return;
    }
    if (strcmp(t->native, "numpy.void") == 0 &&
        (get_u64(r, addr + (uint64_t)layouts[0].void_value, &data) != 0 ||
         get_u64(r, addr + (uint64_t)layouts[0].void_descr, &descr) != 0 ||
         read_descr(r, descr, &v) != 0 || v.names == 0 || data < PYWALK_PAGE))
        v.size = 0;
    if (v.size == 0) {
        obj_put_instance(r, addr, t);
        return;
    }
    obj_put_type(r, t, true);
    obj_put(r, "(");
    if (v.kind == 'M' || v.kind == 'm')
        read_unit(r, addr + (uint64_t)layouts[0].scalar_unit, &v);
    quote = v.kind == 'M' && obj_has_unit(&v) ? "'" : "";
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
