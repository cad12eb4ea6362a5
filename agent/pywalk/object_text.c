/* SPDX-License-Identifier: Apache-2.0 */
/* str and bytes, quoted and escaped as repr() does. */
#include "object_render.h"

#define PIECE 512 /* bytes read at once; a multiple of 4 */

/* Characters that repr() escapes, as far as they can be known without Unicode's tables: controls, spaces other than
 * the space, formats, surrogates, private use. It escapes unassigned characters, too; we do not. */
static bool printable(uint32_t c) {
    static const struct {
        uint32_t low, high;
    } not [] = {
        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x1680, 0x1680},   {0x180e, 0x180e},
        {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},
        {0xd800, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff}, {0xe01f0, 0x10ffff},
    };
    if (c < 0x20)
        return false;
    for (size_t i = 0; i < sizeof not / sizeof *not &&c >= not [i].low; i++)
        if (c <= not [i].high)
            return false;
    return true;
}

static void put_char(struct render *r, uint32_t c, char quote, bool bytes) {
    char utf8[4];

    if (c == (uint32_t)quote || c == '\\')
        obj_put_format(r, "\\%c", (int)c);
    else if (c == '\n')
        obj_put(r, "\\n");
    else if (c == '\r')
        obj_put(r, "\\r");
    else if (c == '\t')
        obj_put(r, "\\t");
    else if ((bytes ? c >= 0x20 && c < 0x7f : printable(c)))
        obj_put_bytes(r, utf8, pywalk_utf8(c, utf8));
    else if (c < 0x100)
        obj_put_format(r, "\\x%02x", c);
    else if (c < 0x10000)
        obj_put_format(r, "\\u%04x", c);
    else
        obj_put_format(r, "\\U%08x", c);
}

/* Gets character `at`; to be called for each one from 0 up to `end`, because memory is read in pieces of PIECE bytes. False: it cannot be read. */
static bool read_char(struct render *r, const struct pywalk_chars *s, uint64_t at, uint64_t end,
                      uint8_t *piece, uint32_t *c) {
    size_t count = PIECE / s->unit, left = end - at, i = at % count;

    if (i == 0 &&
        !obj_get(r, s->data + at * s->unit, piece, (left < count ? left : count) * s->unit))
        return false;
    *c = pywalk_char(piece + i * s->unit, s->unit);
    return true;
}

/* Double quotes when there are single ones inside, and no double ones. Looks only at what is shown. */
static char choose_quote(struct render *r, const struct pywalk_chars *s, uint64_t end) {
    uint8_t piece[PIECE];
    bool single = false, twice = false;
    uint32_t c;

    for (uint64_t at = 0; at < end && read_char(r, s, at, end, piece, &c); at++) {
        single |= c == '\'';
        twice |= c == '"';
        obj_ok(r, c <= 0x10ffff);
    }
    return single && !twice ? '"' : '\'';
}

static void put_quoted(struct render *r, const struct pywalk_chars *s, const char *prefix) {
    uint64_t end = s->length < r->limit.string ? s->length : r->limit.string;
    bool bytes = prefix[0] == 'b';
    uint8_t piece[PIECE];
    uint32_t c;
    char quote = choose_quote(r, s, end);

    obj_put(r, prefix);
    if (r->rc != 0)
        return;
    obj_put_bytes(r, &quote, 1);
    for (uint64_t at = 0; at < end && read_char(r, s, at, end, piece, &c); at++)
        put_char(r, c > 0x10ffff ? '?' : c, quote, bytes);
    obj_error(r); /* it could be read just before */
    obj_put_bytes(r, &quote, 1);
    if (end < s->length)
        obj_put_format(r, "... (%lu)", s->length);
}

/* Finds the characters of a str. */
static bool str_open(struct render *r, uint64_t addr, struct pywalk_chars *s) {
    int rc = pywalk_chars(&r->pw, addr, s);

    if (rc == -EAGAIN && r->f->str_wstr != 0) { /* wchar_t only */
        s->unit = 4;
        s->length = obj_count(r, addr + r->f->str_wstr_length);
        s->data = obj_u64(r, addr + r->f->str_wstr);
        obj_ok(r, pywalk_plausible(s->data & ~7ull));
    } else if (rc != 0) {
        obj_fail(r, rc == -EAGAIN ? -EBADMSG : rc);
    }
    return r->rc == 0;
}

void obj_put_str(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    struct pywalk_chars s;

    if (str_open(r, addr, &s))
        put_quoted(r, &s, "");
}

void obj_put_part(struct render *r, const char *before, uint64_t addr, uint64_t from, uint64_t to) {
    struct pywalk_chars s = {addr + pywalk_offsets(&r->pw)->f.bytes_data, 0, 1};
    struct object_type t;
    bool bytes = obj_type_of(r, addr, &t) && strcmp(t.native, "bytes") == 0;

    if (bytes)
        s.length = obj_count(r, addr + r->f->ob_size);
    else if (t.kind != KIND_STR || !str_open(r, addr, &s))
        return;
    if (!obj_ok(r, from <= to && to <= s.length))
        return;
    s.data += from * s.unit;
    s.length = to - from;
    obj_put(r, before);
    put_quoted(r, &s, bytes ? "b" : "");
}

void obj_put_characters(struct render *r, uint64_t data, uint64_t length, unsigned unit) {
    put_quoted(r, &(struct pywalk_chars){data, length, unit}, unit == 1 ? "b" : "");
    obj_put_error(r, data);
}

void obj_put_byte_string(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    uint64_t size = obj_count(r, addr + r->f->ob_size);

    if (r->rc == 0)
        obj_put_characters(r, addr + pywalk_offsets(&r->pw)->f.bytes_data, size, 1);
}

void obj_put_bytearray(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    uint64_t size = obj_count(r, addr + r->f->ob_size);
    uint64_t start = size != 0 ? obj_u64(r, addr + r->f->bytearray_start) : 0;

    if (r->rc == 0)
        obj_put_characters(r, start, size, 1);
}
