/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of C types of the standard library: datetime, decimal, array, memoryview, functools.partial, re.Pattern and re.Match.
 *
 * The layout of datetime comes from its header (object_table.inc), the layouts of partial, Pattern and Match from the list of members in the type itself.
 * No header, or not that of each version, has the structures of timezone, Decimal, array and memoryview, which have been the same since 3.3: what is
 * read is trusted only when the type has the size of the structure and the contents agree with each other.
 */
#include "object_render.h"

#include <stdio.h>

/* Whether the structure has this size; if not, the layout is a different one. */
static bool has_size(struct render *r, const struct object_type *t, int64_t size) {
    if (size == 0 || t->native_size != size)
        obj_fail(r, -ENOTSUP);
    return r->rc == 0;
}

/* date, time and datetime: numbers with the highest byte first; in the last two followed by "fold" and, if there is one, a time zone. */
void obj_put_datetime(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    bool date = strcmp(t->native, "datetime.time") != 0;
    bool time = strcmp(t->native, "datetime.date") != 0;
    uint8_t b[12] = {0}, *p = b + 1, *h = date ? p + 4 : p; /* date, time of day */
    uint64_t zone = 0;

    if (!has_size(r, t, !time ? f->date_size : date ? f->datetime_size : f->time_size))
        return;
    obj_get(r, addr + f->date_aware, b, !time ? 5 : date ? 12 : 8);
    if (time && b[0] == 1)
        zone = obj_pointer(r, addr + (date ? f->datetime_zone : f->time_zone));
    obj_ok(r, b[0] == 0 || (b[0] == 1 && (!time || zone != 0)));
    obj_ok(r, !date || (p[2] >= 1 && p[2] <= 12 && p[3] >= 1 && p[3] <= 31));
    unsigned us = (unsigned)h[3] << 16 | (unsigned)h[4] << 8 | h[5];
    if (!obj_ok(r, !time || (h[0] <= 23 && h[1] <= 59 && h[2] <= 59 && us <= 999999 && h[6] <= 1)))
        return;
    obj_put_type(r, t, false);
    obj_put(r, "(");
    if (date)
        obj_put_format(r, "%u, %u, %u%s", p[0] << 8 | p[1], p[2], p[3], time ? ", " : "");
    if (time) {
        obj_put_format(r, "%u, %u", h[0], h[1]);
        if (h[2] != 0 || us != 0)
            obj_put_format(r, ", %u", h[2]);
        if (us != 0)
            obj_put_format(r, ", %u", us);
        if (h[6] != 0)
            obj_put(r, ", fold=1");
        if (zone != 0)
            obj_put_shape(r, ", tzinfo=%o", addr, t, &zone);
    }
    obj_put(r, ")");
}

static bool read_delta(struct render *r, uint64_t addr, const struct object_type *t, int32_t v[3]) {
    return has_size(r, t, r->f->delta_size) && obj_get(r, addr + r->f->delta_days, v, 12) &&
           obj_ok(r, v[0] <= 999999999 && v[0] >= -999999999 && v[1] >= 0 && v[1] < 86400 &&
                         v[2] >= 0 && v[2] <= 999999);
}

void obj_put_timedelta(struct render *r, uint64_t addr, const struct object_type *t) {
    static const char *const names[] = {"days", "seconds", "microseconds"};
    const char *between = "";
    int32_t v[3];

    if (!read_delta(r, addr, t, v))
        return;
    obj_put_type(r, t, false);
    obj_put(r, "(");
    for (int i = 0; i < 3; i++)
        if (v[i] != 0) {
            obj_put_format(r, "%s%s=%d", between, names[i], v[i]);
            between = ", ";
        }
    obj_put(r, *between == '\0' ? "0)" : ")");
}

void obj_put_timezone(struct render *r, uint64_t addr, const struct object_type *t) {
    struct object_type its;
    uint64_t part[2]; /* the offset, and a name or NULL */
    int32_t v[3];

    if (!has_size(r, t, r->f->ob_head + 16))
        return;
    part[0] = obj_pointer(r, addr + r->f->ob_head);
    part[1] = obj_pointer(r, addr + r->f->ob_head + 8);
    if (!obj_type_of(r, part[0], &its) ||
        !obj_ok(r, strcmp(its.native, "datetime.timedelta") == 0) ||
        !read_delta(r, part[0], &its, v))
        return;
    obj_put_shape(r,
                  part[1] != 0                          ? "%t(%o, %o)"
                  : v[0] == 0 && v[1] == 0 && v[2] == 0 ? "%t.utc"
                                                        : "%t(%o)",
                  addr, t, part);
}

/* ---- decimal: libmpdec's numbers, 19 digits in a word, the lowest first ------------------------- */

#define WORD_DIGITS 19
enum { NEGATIVE = 1, INFINITE = 2, NAN_QUIET = 4, NAN_SIGNALING = 8 };

struct decimal {    /* after the object's head and its hash; then four words */
    uint64_t flags; /* only the first byte counts */
    int64_t exponent, digits, words, allocated;
    uint64_t data;
};

/* Writes the digits, with a decimal point before digit number `point`; at most as many as a string may have characters. */
static void put_digits(struct render *r, const struct decimal *d, int64_t point) {
    int width = (int)(d->digits - (d->words - 1) * WORD_DIGITS);
    char text[24];
    int64_t n = 0;

    for (int64_t i = d->words - 1; i >= 0 && !r->full; i--, width = WORD_DIGITS) {
        snprintf(text, sizeof text, "%0*lu", width, obj_u64(r, d->data + i * 8));
        if (!obj_ok(r, strlen(text) == (size_t)width))
            return;
        for (char *p = text; *p != '\0'; p++, n++) {
            if (n == point)
                obj_put(r, ".");
            if (n == (int64_t)r->limit.string) {
                obj_put(r, "...");
                return;
            }
            obj_put_bytes(r, p, 1);
        }
    }
}

void obj_put_decimal(struct render *r, uint64_t addr, const struct object_type *t) {
    int64_t head = r->f->ob_head + 8, top;
    struct decimal d;
    uint8_t flags;

    if (!has_size(r, t, head + (int64_t)sizeof d + 4 * 8) || !obj_get(r, addr + head, &d, sizeof d))
        return;
    flags = (uint8_t)d.flags;
    if (!obj_ok(r, d.digits >= 0 && d.digits <= 1ll << 40 && d.exponent <= 1ll << 61 &&
                       d.exponent >= -(1ll << 61) &&
                       d.words == (d.digits + WORD_DIGITS - 1) / WORD_DIGITS &&
                       d.allocated >= d.words && pywalk_plausible(d.data) &&
                       (d.words != 0 || (flags & (INFINITE | NAN_QUIET | NAN_SIGNALING)) != 0)))
        return;
    obj_put_clean(r, obj_short(t->name));
    obj_put(r, (flags & NEGATIVE) != 0 ? "('-" : "('");
    top = d.exponent + d.digits - 1; /* power of ten of the first digit */
    if ((flags & INFINITE) != 0) {
        obj_put(r, "Infinity");
    } else if ((flags & (NAN_QUIET | NAN_SIGNALING)) != 0) {
        obj_put(r, (flags & NAN_QUIET) != 0 ? "NaN" : "sNaN");
        put_digits(r, &d, -1);
    } else if (d.exponent <= 0 && top >= -6 && d.digits <= (int64_t)r->limit.string) {
        if (top < 0)
            obj_put_format(r, "0.%.*s", (int)(-top - 1), "00000");
        put_digits(r, &d, top < 0 || d.exponent == 0 ? -1 : top + 1);
    } else {
        put_digits(r, &d, 1);
        obj_put_format(r, "E%+ld", top);
    }
    obj_put_error(r, addr);
    obj_put(r, "')");
}

/* ---- the others ---------------------------------------------------------------------------------- */

/* The type that a letter of the struct module stands for, if elements of this size can be of it; else size 0. */
static struct array_view view_of(char code, uint64_t size) {
    static const struct {
        char code, kind;
        uint32_t size;
    } codes[] = {{'b', 'i', 1}, {'B', 'u', 1}, {'u', 'U', 4}, {'w', 'U', 4}, {'h', 'i', 2},
                 {'H', 'u', 2}, {'i', 'i', 4}, {'I', 'u', 4}, {'l', 'i', 8}, {'L', 'u', 8},
                 {'q', 'i', 8}, {'Q', 'u', 8}, {'f', 'f', 4}, {'d', 'f', 8}, {'e', 'f', 2},
                 {'?', 'b', 1}, {'n', 'i', 8}, {'N', 'u', 8}, {'c', 'S', 1}};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code && codes[i].size == size)
            return (struct array_view){.kind = codes[i].kind, .size = codes[i].size};
    return (struct array_view){.size = 0};
}

void obj_put_array(struct render *r, uint64_t addr, const struct object_type *t) {
    struct {
        uint64_t items, allocated, descr, weak, exports;
    } a; /* after the size */
    struct {
        char code;
        uint32_t size;
    } descr;
    uint64_t count = obj_count(r, addr + r->f->ob_size);

    if (!has_size(r, t, r->f->ob_size + 8 + (int64_t)sizeof a))
        return;
    obj_get(r, addr + r->f->ob_size + 8, &a, sizeof a);
    obj_get(r, a.descr, &descr, sizeof descr);
    struct array_view v = view_of(descr.code, descr.size);
    if (!obj_ok(r, v.size != 0 && a.allocated >= count && (count == 0 || a.items >= PYWALK_PAGE)))
        return;
    obj_put_clean(r, obj_short(t->name));
    obj_put_format(r, "('%c'%s", descr.code, count == 0 ? "" : v.kind == 'U' ? ", " : ", [");
    if (v.kind == 'U' && count > 0) {
        obj_put_characters(r, a.items, count, v.size);
    } else if (count > 0) {
        for (uint64_t i = 0; obj_more(r, i, count); i++)
            obj_put_element(r, a.items + i * v.size, &v);
        obj_put(r, "]");
    }
    obj_put(r, ")");
}

/* Writes its shape and elements, as for an array. No elements if it is released, or has pointers to rows. */
void obj_put_memoryview(struct render *r, uint64_t addr, const struct object_type *t) {
    struct {
        uint64_t managed, hash, flags, exports, buf, obj, len, itemsize;
        int32_t readonly, ndim;
        uint64_t format, shape, strides, suboffsets, internal, weak;
    } m; /* after the size */
    char format[8] = "B";

    if (!has_size(r, t, r->f->ob_size + 8 + (int64_t)sizeof m) ||
        !obj_get(r, addr + r->f->ob_size + 8, &m, sizeof m))
        return;
    if (m.format != 0)
        obj_c_text(r, m.format, format, sizeof format);
    struct array_view v = view_of(format[format[0] == '@'], m.itemsize);
    v.data = m.suboffsets == 0 && (m.flags & 1) == 0 ? m.buf : 0;
    v.ndim = obj_ok(r, m.ndim >= 0 && m.ndim <= ARRAY_DIMS) ? m.ndim : 0;
    obj_get(r, m.shape, v.shape, (size_t)v.ndim * 8);
    obj_get(r, m.strides, v.stride, (size_t)v.ndim * 8);
    uint64_t bytes = m.itemsize;
    for (int i = 0; i < v.ndim; i++)
        obj_ok(r, v.shape[i] >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)v.shape[i], &bytes));
    if (!obj_ok(r, bytes == m.len))
        return;
    obj_put(r, "<memoryview shape=");
    obj_put_dims(r, &v);
    obj_put(r, " format='");
    obj_put_clean(r, format);
    obj_put(r, "'");
    if (v.size != 0 && v.data >= PYWALK_PAGE)
        obj_put_values(r, &v);
    obj_put(r, ">");
}

void obj_put_partial(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t func = obj_member_object(r, addr, t, "func"), key, value, count;
    uint64_t args = obj_tuple(r, obj_member_object(r, addr, t, "args"), &count);
    uint64_t keywords = obj_member_object(r, addr, t, "keywords");
    struct dict_iter it = {.used = 0}; /* None: there are none */
    char name[64];

    if (r->rc == 0 && obj_is(r, keywords, KIND_DICT))
        obj_dict_open(r, keywords, &it);
    if (r->rc != 0)
        return;
    obj_put_clean(r, t->name);
    if (!obj_open(r, addr, 1, "()"))
        return;
    obj_render(r, func);
    if (count > 0)
        obj_put(r, ", ");
    obj_put_items(r, args, count, 0);
    for (uint64_t i = 0;
         it.used > 0 && obj_dict_next(r, &it, &key, &value) &&
         obj_text(r, key, name, sizeof name) && obj_next(r, i, r->limit.items, ", ");
         i++) {
        obj_put_clean(r, name);
        obj_put(r, "=");
        obj_render(r, value);
    }
    obj_close(r, addr, ")");
}

void obj_put_pattern(struct render *r, uint64_t addr, const struct object_type *t) {
    static const char *const names[] = {"TEMPLATE", "IGNORECASE", "LOCALE", "MULTILINE", "DOTALL",
                                        "UNICODE",  "VERBOSE",    "DEBUG",  "ASCII"};
    uint64_t pattern = obj_member_object(r, addr, t, "pattern");
    uint32_t flags = obj_u32(r, obj_member(r, addr, t, "flags"));
    const char *before = ", re.";

    if (r->rc != 0)
        return;
    if (obj_is(r, pattern, KIND_STR) && (flags & (4 | 32 | 256)) == 32) /* the default for a str */
        flags &= ~32u;
    obj_put_shape(r, "re.compile(%o", addr, t, &pattern);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if ((flags >> i & 1) != 0) {
            obj_put_format(r, "%s%s", before, names[i]);
            before = "|re.";
        }
    if (flags >> 9 != 0)
        obj_put_format(r, "%s0x%x", before[0] == '|' ? "|" : ", ", flags & ~511u);
    obj_put(r, ")");
}

/* The match begins and ends at the first two of its marks, which lie at the end of the structure. */
void obj_put_match(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t string = obj_member_object(r, addr, t, "string"), span[2];

    if (!obj_get(r, addr + t->native_size - 8, span, sizeof span) ||
        !obj_ok(r, span[0] <= span[1] && span[1] < 1ull << 40))
        return;
    obj_put_shape(r, "<%T object; span=(", addr, t, NULL);
    obj_put_format(r, "%lu, %lu)", span[0], span[1]);
    obj_put_part(r, ", match=", string, span[0], span[1]);
    obj_put(r, ">");
}
