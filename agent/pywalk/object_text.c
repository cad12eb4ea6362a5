/* SPDX-License-Identifier: Apache-2.0 */
/* str and bytes, quoted and escaped as repr() does. */
#include "object_render.h"

#define PIECE 512 /* bytes read at once; a multiple of 4 */

/* Characters that repr() escapes, as far as they can be told without Unicode's tables: controls, spaces other than
 * the space, formats, surrogates, private use. Unassigned ones it escapes as well; we do not. */
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
    if (c == (uint32_t)quote || c == '\\')
        obj_put_format(r, "\\%c", (int)c);
    else if (c == '\n')
        obj_put(r, "\\n");
    else if (c == '\r')
        obj_put(r, "\\r");
    else if (c == '\t')
        obj_put(r, "\\t");
    else if ((bytes ? c >= 0x20 && c < 0x7f : printable(c)))
        obj_put_utf8(r, c);
    else if (c < 0x100)
        obj_put_format(r, "\\x%02x", c);
    else if (c < 0x10000)
        obj_put_format(r, "\\u%04x", c);
    else
        obj_put_format(r, "\\U%08x", c);
}

struct quoted {
    uint64_t data, length; /* in characters */
    unsigned unit;
    bool bytes;
};

static uint32_t char_at(const uint8_t *p, unsigned unit) {
    uint32_t c = p[0];

    if (unit >= 2)
        c |= (uint32_t)p[1] << 8;
    if (unit == 4)
        c |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return c;
}

/* Double quotes when there are single ones inside, and no double ones. Looks at what is shown only. */
static int choose_quote(struct render *r, const struct quoted *q, uint64_t length, char *quote) {
    uint8_t piece[PIECE];
    bool single = false, twice = false;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < length;) {
        size_t count = PIECE / q->unit;
        if (count > length - at)
            count = (size_t)(length - at);
        rc = get(r, q->data + at * q->unit, piece, count * q->unit);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            uint32_t c = char_at(piece + i * q->unit, q->unit);
            single |= c == '\'';
            twice |= c == '"';
            if (c > 0x10ffff)
                rc = -EBADMSG;
        }
        at += count;
    }
    *quote = single && !twice ? '"' : '\'';
    return rc;
}

static int put_quoted(struct render *r, const struct quoted *q) {
    uint64_t length = q->length < r->limit.string ? q->length : r->limit.string;
    uint8_t piece[PIECE];
    char quote;
    int rc = choose_quote(r, q, length, &quote);

    if (rc != 0)
        return rc;
    obj_put_bytes(r, &quote, 1);
    for (uint64_t at = 0; rc == 0 && at < length && !r->full;) {
        size_t count = PIECE / q->unit;
        if (count > length - at)
            count = (size_t)(length - at);
        rc = get(r, q->data + at * q->unit, piece, count * q->unit);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            uint32_t c = char_at(piece + i * q->unit, q->unit);
            put_char(r, c > 0x10ffff ? '?' : c, quote, q->bytes);
        }
        at += count;
    }
    obj_put_bytes(r, &quote, 1);
    if (length < q->length)
        obj_put_format(r, "... (%llu)", (unsigned long long)q->length);
    return 0;
}

/* Where the characters are. */
static int str_open(struct render *r, uint64_t addr, struct quoted *q) {
    const struct pywalk_fields *s = &pywalk_offsets(&r->pw)->f;
    uint8_t head[128];
    uint32_t state;
    int rc;

    if (s->str_state + 4 > sizeof head || s->str_length + 8 > sizeof head)
        return -EBADMSG;
    rc = get(r, addr, head, s->str_state + 4);
    if (rc != 0)
        return rc;
    q->length = load64(head + s->str_length);
    state = load32(head + s->str_state);
    q->unit = (state & s->str_kind_mask) / (s->str_kind_mask & -s->str_kind_mask);
    q->data = addr + s->str_compact_data;
    if ((state & s->str_ascii_mask) != 0)
        q->data = addr + s->str_ascii_data;
    if ((state & s->str_compact_mask) == 0) {
        if (q->unit == 0 && r->f->str_wstr != 0) { /* not ready: wchar_t only */
            q->unit = 4;
            rc = get_u64(r, addr + (uint64_t)r->f->str_wstr_length, &q->length);
            if (rc == 0)
                rc = get_u64(r, addr + (uint64_t)r->f->str_wstr, &q->data);
        } else {
            rc = get_u64(r, addr + s->str_any, &q->data);
        }
        if (rc == 0 && !pywalk_plausible(q->data & ~7ull))
            rc = -EBADMSG;
    }
    if (rc == 0 && ((q->unit != 1 && q->unit != 2 && q->unit != 4) || q->length > 1ull << 40))
        rc = -EBADMSG;
    return rc;
}

void obj_put_str(struct render *r, uint64_t addr) {
    struct quoted q = {.bytes = false};
    int rc = str_open(r, addr, &q);

    if (rc == 0)
        rc = put_quoted(r, &q);
    if (rc != 0)
        obj_put_error(r, rc, addr);
}

static void put_chars(struct render *r, const struct quoted *q) {
    int rc = put_quoted(r, q);

    if (rc != 0)
        obj_put_error(r, rc, q->data);
}

void obj_put_binary(struct render *r, uint64_t data, uint64_t size) {
    obj_put(r, "b");
    put_chars(r, &(struct quoted){data, size, 1, true});
}

void obj_put_ucs4(struct render *r, uint64_t data, uint64_t length) {
    put_chars(r, &(struct quoted){data, length, 4, false});
}
