/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of C types of the standard library: datetime, decimal, array, functools.partial, re.Pattern, zoneinfo.
 *
 * datetime's layout is of its header (object_table.inc), and partial's, Pattern's and ZoneInfo's of the list of members that the type itself
 * has. No header has the structures of timezone, Decimal and array, which have been the same since 3.3: what is read is
 * believed only when the type's size is the structure's and the contents agree with each other.
 */
#include "object_render.h"

#include <stdio.h>

/* Each returns 0, -ENOTSUP: nothing is written, the layout is another one; or the error of a read: nothing is written. */
typedef int (*put_fn)(struct render *r, uint64_t addr, const struct object_type *t);

static void put_child(struct render *r, uint64_t addr, uint64_t child) {
    if (!obj_enter(r, addr)) {
        obj_put(r, "...");
        return;
    }
    obj_render(r, child);
    obj_leave(r);
}

/* The name that repr() has for a type of which the module's is not shown. */
static void put_short(struct render *r, const struct object_type *t) {
    const char *dot = strrchr(t->name, '.');

    obj_put_clean(r, dot != NULL ? dot + 1 : t->name);
    obj_put(r, "(");
}

/* The place of a member that the type tells of. */
static int member(struct render *r, uint64_t addr, const struct object_type *t, const char *name,
                  uint64_t *at) {
    const struct object_fields *f = r->f;
    size_t n = strlen(name) + 1;
    uint64_t text, offset;
    char have[16];

    for (uint64_t m = t->native_members, i = 0; m != 0 && i < 64;
         i++, m += (uint64_t)f->member_size) {
        int rc = get_u64(r, m + (uint64_t)f->member_name, &text);
        if (rc == -E2BIG)
            return rc;
        if (rc != 0 || text == 0)
            break;
        if (get(r, text, have, n) != 0 || memcmp(have, name, n) != 0)
            continue;
        rc = get_u64(r, m + (uint64_t)f->member_offset, &offset);
        if (rc == 0 && offset > (uint64_t)t->native_size - 8)
            rc = -ENOTSUP;
        *at = addr + offset;
        return rc;
    }
    return -ENOTSUP;
}

static int object_member(struct render *r, uint64_t addr, const struct object_type *t,
                         const char *name, uint64_t *value) {
    int rc = member(r, addr, t, name, value);

    if (rc == 0)
        rc = obj_get_pointer(r, *value, value);
    return rc == 0 && *value == 0 ? -EBADMSG : rc;
}

/* date, time and datetime: numbers with the highest byte first; behind the last two "fold" and, if there is one, a zone. */
static int put_datetime(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_fields *f = r->f;
    bool date = strcmp(t->native, "datetime.time") != 0;
    bool time = strcmp(t->native, "datetime.date") != 0;
    int64_t size = !time ? f->date_size : date ? f->datetime_size : f->time_size;
    uint8_t b[12] = {0}, *p = b + 1;
    uint64_t zone = 0;
    unsigned us;
    int rc = size == 0 || t->native_size != size ? -ENOTSUP
                                                 : get(r, addr + (uint64_t)f->date_aware, b,
                                                       !time  ? 5
                                                       : date ? 12
                                                              : 8);

    if (rc == 0 && time && b[0] == 1)
        rc = obj_get_pointer(r, addr + (uint64_t)(date ? f->datetime_zone : f->time_zone), &zone);
    if (rc == 0 && (b[0] > 1 || (b[0] == 1 && time && zone == 0) ||
                    (date && (p[2] < 1 || p[2] > 12 || p[3] < 1 || p[3] > 31))))
        rc = -EBADMSG;
    us = (unsigned)p[date ? 7 : 3] << 16 | (unsigned)p[date ? 8 : 4] << 8 | p[date ? 9 : 5];
    if (rc == 0 && time) {
        uint8_t *h = date ? p + 4 : p;
        if (h[0] > 23 || h[1] > 59 || h[2] > 59 || us > 999999 || h[6] > 1)
            rc = -EBADMSG;
    }
    if (rc != 0)
        return rc;
    obj_put_type(r, t, false);
    obj_put(r, "(");
    if (date)
        obj_put_format(r, "%u, %u, %u%s", p[0] << 8 | p[1], p[2], p[3], time ? ", " : "");
    if (time) {
        p += date ? 4 : 0;
        obj_put_format(r, "%u, %u", p[0], p[1]);
        if (p[2] != 0 || us != 0)
            obj_put_format(r, ", %u", p[2]);
        if (us != 0)
            obj_put_format(r, ", %u", us);
        if (p[6] != 0)
            obj_put(r, ", fold=1");
        if (zone != 0) {
            obj_put(r, ", tzinfo=");
            put_child(r, addr, zone);
        }
    }
    obj_put(r, ")");
    return 0;
}

static int read_delta(struct render *r, uint64_t addr, const struct object_type *t, int32_t v[3]) {
    const struct object_fields *f = r->f;
    int rc = f->delta_size == 0 || t->native_size != f->delta_size
                 ? -ENOTSUP
                 : get(r, addr + (uint64_t)f->delta_days, v, 12);

    if (rc == 0 && (v[0] > 999999999 || v[0] < -999999999 || v[1] < 0 || v[1] >= 86400 ||
                    v[2] < 0 || v[2] > 999999))
        rc = -EBADMSG;
    return rc;
}

static int put_timedelta(struct render *r, uint64_t addr, const struct object_type *t) {
    static const char *const names[] = {"days", "seconds", "microseconds"};
    const char *between = "";
    int32_t v[3];
    int rc = read_delta(r, addr, t, v);

    if (rc != 0)
        return rc;
    obj_put_type(r, t, false);
    obj_put(r, "(");
    for (int i = 0; i < 3; i++)
        if (v[i] != 0) {
            obj_put_format(r, "%s%s=%d", between, names[i], v[i]);
            between = ", ";
        }
    obj_put(r, *between == '\0' ? "0)" : ")");
    return 0;
}

static int put_timezone(struct render *r, uint64_t addr, const struct object_type *t) {
    struct object_type its;
    uint64_t offset, name;
    int32_t v[3];
    int rc = t->native_size == r->f->ob_head + 16 ? 0 : -ENOTSUP;

    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)r->f->ob_head, &offset);
    if (rc == 0)
        rc = obj_get_pointer(r, addr + (uint64_t)r->f->ob_head + 8, &name);
    if (rc == 0)
        rc = obj_type_of(r, offset, &its);
    if (rc == 0)
        rc = strcmp(its.native, "datetime.timedelta") == 0 ? read_delta(r, offset, &its, v)
                                                           : -EBADMSG;
    if (rc != 0)
        return rc;
    obj_put_type(r, t, false);
    if (name == 0 && v[0] == 0 && v[1] == 0 && v[2] == 0) {
        obj_put(r, ".utc");
        return 0;
    }
    obj_put(r, "(");
    put_child(r, addr, offset);
    if (name != 0) {
        obj_put(r, ", ");
        put_child(r, addr, name);
    }
    obj_put(r, ")");
    return 0;
}

static int put_zoneinfo(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t key;
    int rc = object_member(r, addr, t, "key", &key);

    if (rc != 0)
        return rc;
    obj_put(r, "zoneinfo.ZoneInfo(key=");
    put_child(r, addr, key);
    obj_put(r, ")");
    return 0;
}

/* ---- decimal: libmpdec's numbers, 19 digits in a word, the lowest first ------------------------- */

#define WORD_DIGITS 19
enum { NEGATIVE = 1, INFINITE = 2, NAN_QUIET = 4, NAN_SIGNALING = 8 };

struct decimal {    /* after the object's head and its hash; then four words */
    uint64_t flags; /* of them only the first byte */
    int64_t exponent, digits, words, allocated;
    uint64_t data;
};

/* The digits, with a point in front of the one with that number; no more of them than a string may have characters. */
static int put_digits(struct render *r, const struct decimal *d, int64_t point) {
    int width = (int)(d->digits - (d->words - 1) * WORD_DIGITS);
    char text[24];
    uint64_t word;
    int64_t n = 0;

    for (int64_t i = d->words - 1; i >= 0 && !r->full; i--, width = WORD_DIGITS) {
        int rc = get_u64(r, d->data + (uint64_t)i * 8, &word);
        if (rc != 0)
            return rc;
        snprintf(text, sizeof text, "%0*llu", width, (unsigned long long)word);
        if (strlen(text) != (size_t)width)
            return -EBADMSG;
        for (char *p = text; *p != '\0'; p++, n++) {
            if (n == point)
                obj_put(r, ".");
            if (n == (int64_t)r->limit.string) {
                obj_put(r, "...");
                return 0;
            }
            obj_put_bytes(r, p, 1);
        }
    }
    return 0;
}

static int put_decimal(struct render *r, uint64_t addr, const struct object_type *t) {
    struct decimal d;
    int64_t head = r->f->ob_head + 8, top;
    uint8_t flags;
    int rc = t->native_size != head + (int64_t)sizeof d + 4 * 8
                 ? -ENOTSUP
                 : get(r, addr + (uint64_t)head, &d, sizeof d);

    if (rc != 0)
        return rc;
    flags = (uint8_t)d.flags;
    if (d.digits < 0 || d.digits > 1ll << 40 || d.exponent > 1ll << 61 ||
        d.exponent < -(1ll << 61) || d.words != (d.digits + WORD_DIGITS - 1) / WORD_DIGITS ||
        d.allocated < d.words || !pywalk_plausible(d.data) ||
        (d.words == 0 && (flags & (INFINITE | NAN_QUIET | NAN_SIGNALING)) == 0))
        return -EBADMSG;
    put_short(r, t);
    obj_put(r, (flags & NEGATIVE) != 0 ? "'-" : "'");
    if ((flags & INFINITE) != 0) {
        obj_put(r, "Infinity");
    } else if ((flags & (NAN_QUIET | NAN_SIGNALING)) != 0) {
        obj_put(r, (flags & NAN_QUIET) != 0 ? "NaN" : "sNaN");
        rc = put_digits(r, &d, -1);
    } else {
        top = d.exponent + d.digits - 1; /* power of ten of the first digit */
        if (d.exponent <= 0 && top >= -6 && d.digits <= (int64_t)r->limit.string) {
            if (top < 0)
                obj_put_format(r, "0.%.*s", (int)(-top - 1), "00000");
            rc = put_digits(r, &d, top < 0 || d.exponent == 0 ? -1 : top + 1);
        } else {
            rc = put_digits(r, &d, 1);
            obj_put_format(r, "E%+lld", (long long)top);
        }
    }
    if (rc != 0)
        obj_put_error(r, rc, addr);
    obj_put(r, "')");
    return 0;
}

/* ---- the others ---------------------------------------------------------------------------------- */

static int put_array(struct render *r, uint64_t addr, const struct object_type *t) {
    static const struct {
        char code, kind;
        uint32_t size;
    } codes[] = {{'b', 'i', 1}, {'B', 'u', 1}, {'u', 'U', 4}, {'w', 'U', 4}, {'h', 'i', 2},
                 {'H', 'u', 2}, {'i', 'i', 4}, {'I', 'u', 4}, {'l', 'i', 8}, {'L', 'u', 8},
                 {'q', 'i', 8}, {'Q', 'u', 8}, {'f', 'f', 4}, {'d', 'f', 8}};
    struct {
        uint64_t items, allocated, descr, weak, exports;
    } a = {0}; /* after the size */
    struct {
        char code;
        uint32_t size;
    } descr;
    struct array_view v = {.ndim = 0};
    int64_t head = r->f->ob_size + 8;
    uint64_t count = 0;
    int rc = t->native_size == head + (int64_t)sizeof a ? 0 : -ENOTSUP;

    if (rc == 0)
        rc = obj_get_count(r, addr + (uint64_t)r->f->ob_size, &count);
    if (rc == 0)
        rc = get(r, addr + (uint64_t)head, &a, sizeof a);
    if (rc == 0)
        rc = get(r, a.descr, &descr, sizeof descr);
    for (size_t i = 0; rc == 0 && i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == descr.code && codes[i].size == descr.size) {
            v.kind = codes[i].kind;
            v.size = codes[i].size;
        }
    if (rc == 0 && (v.size == 0 || a.allocated < count || (count > 0 && a.items < PYWALK_PAGE)))
        rc = -EBADMSG;
    if (rc != 0)
        return rc;
    put_short(r, t);
    obj_put_format(r, "'%c'%s", descr.code, count == 0 ? "" : v.kind == 'U' ? ", " : ", [");
    if (v.kind == 'U' && count > 0) {
        obj_put_ucs4(r, a.items, count);
    } else if (count > 0) {
        for (uint64_t i = 0; obj_more(r, i, count); i++)
            obj_put_element(r, a.items + i * v.size, &v);
        obj_put(r, "]");
    }
    obj_put(r, ")");
    return 0;
}

static int put_partial(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t func, args = 0, keywords = 0, key, value, count = 0;
    struct object_type its;
    struct dict_iter it;
    char name[64];
    int rc = object_member(r, addr, t, "func", &func);

    if (rc == 0)
        rc = object_member(r, addr, t, "args", &args);
    if (rc == 0)
        rc = object_member(r, addr, t, "keywords", &keywords);
    if (rc == 0)
        rc = obj_type_of(r, args, &its);
    if (rc == 0)
        rc = its.kind == KIND_TUPLE ? obj_get_count(r, args + (uint64_t)r->f->ob_size, &count)
                                    : -EBADMSG;
    if (rc == 0 && (rc = obj_type_of(r, keywords, &its)) == 0 && its.kind == KIND_DICT)
        rc = obj_dict_open(r, keywords, &it);
    else if (rc == 0)
        it.used = 0; /* None: there are none */
    if (rc != 0)
        return rc;
    obj_put_clean(r, t->name);
    obj_put(r, "(");
    if (!obj_enter(r, addr)) {
        obj_put(r, "...)");
        return 0;
    }
    obj_render(r, func);
    if (count > 0)
        obj_put(r, ", ");
    for (uint64_t i = 0; rc == 0 && obj_more(r, i, count); i++) {
        rc = obj_get_pointer(r, args + (uint64_t)r->f->tuple_items + i * 8, &value);
        if (rc == 0)
            obj_render(r, value);
    }
    for (uint64_t i = 0; rc == 0 && it.used > 0 && !r->full; i++) {
        rc = obj_dict_next(r, &it, &key, &value);
        if (rc <= 0)
            break;
        rc = pywalk_str(&r->pw, key, name, sizeof name);
        if (rc < 0)
            break;
        rc = 0;
        obj_put(r, ", ");
        if (i == r->limit.items) {
            obj_put(r, "...");
            break;
        }
        obj_put_clean(r, name);
        obj_put(r, "=");
        obj_render(r, value);
    }
    if (rc < 0)
        obj_put_error(r, rc, addr);
    obj_put(r, ")");
    obj_leave(r);
    return 0;
}

static int put_pattern(struct render *r, uint64_t addr, const struct object_type *t) {
    static const char *const names[] = {"TEMPLATE", "IGNORECASE", "LOCALE", "MULTILINE", "DOTALL",
                                        "UNICODE",  "VERBOSE",    "DEBUG",  "ASCII"};
    uint64_t pattern, at;
    struct object_type its;
    uint32_t flags = 0;
    const char *before = ", re.";
    int rc = object_member(r, addr, t, "pattern", &pattern);

    if (rc == 0)
        rc = member(r, addr, t, "flags", &at);
    if (rc == 0)
        rc = get(r, at, &flags, sizeof flags);
    if (rc == 0)
        rc = obj_type_of(r, pattern, &its);
    if (rc != 0)
        return rc;
    if (its.kind == KIND_STR && (flags & (4 | 32 | 256)) == 32) /* goes without saying */
        flags &= ~32u;
    obj_put(r, "re.compile(");
    put_child(r, addr, pattern);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if ((flags >> i & 1) != 0) {
            obj_put(r, before);
            obj_put(r, names[i]);
            before = "|re.";
        }
    if (flags >> 9 != 0)
        obj_put_format(r, "%s0x%x", before[0] == '|' ? "|" : ", ", flags & ~511u);
    obj_put(r, ")");
    return 0;
}

static const struct {
    const char *name;
    put_fn put;
} types[] = {
    {"datetime.datetime", put_datetime}, {"datetime.date", put_datetime},
    {"datetime.time", put_datetime},     {"datetime.timedelta", put_timedelta},
    {"datetime.timezone", put_timezone}, {"zoneinfo.ZoneInfo", put_zoneinfo},
    {"decimal.Decimal", put_decimal},    {"array.array", put_array},
    {"functools.partial", put_partial},  {"re.Pattern", put_pattern},
    {"_sre.SRE_Pattern", put_pattern}, /* 3.6 */
};

static put_fn find(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].put;
    return NULL;
}

bool obj_is_standard(const char *name) {
    return find(name) != NULL;
}

void obj_put_standard(struct render *r, uint64_t addr, const struct object_type *t) {
    int rc = find(t->native)(r, addr, t);

    if (rc == -ENOTSUP)
        obj_put_instance(r, addr, t);
    else if (rc != 0)
        obj_put_error(r, rc, addr);
}
