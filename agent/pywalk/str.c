/* SPDX-License-Identifier: Apache-2.0 */
/* str objects as UTF-8. */
#include "mem.h"
#include "offsets.h"

#define PIECE 256 /* bytes of character data read at once; a multiple of 4 */

/* Writes c as UTF-8; returns its length, 0 when there is no room. */
static size_t put_utf8(uint32_t c, char *buf, size_t room) {
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    if (len > room)
        return 0;
    switch (len) {
    case 1:
        buf[0] = (char)c;
        break;
    case 2:
        buf[0] = (char)(0xc0 | c >> 6);
        buf[1] = (char)(0x80 | (c & 0x3f));
        break;
    case 3:
        buf[0] = (char)(0xe0 | c >> 12);
        buf[1] = (char)(0x80 | (c >> 6 & 0x3f));
        buf[2] = (char)(0x80 | (c & 0x3f));
        break;
    default:
        buf[0] = (char)(0xf0 | c >> 18);
        buf[1] = (char)(0x80 | (c >> 12 & 0x3f));
        buf[2] = (char)(0x80 | (c >> 6 & 0x3f));
        buf[3] = (char)(0x80 | (c & 0x3f));
    }
    return len;
}

static uint32_t get_char(const uint8_t *p, unsigned kind) {
    uint32_t c = p[0];

    if (kind >= 2)
        c |= (uint32_t)p[1] << 8;
    if (kind == 4)
        c |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    /* A lone surrogate is no character; above the last one is a torn string. */
    return (c >= 0xd800 && c < 0xe000) || c > 0x10ffff ? '?' : c;
}

int pywalk_str(const struct pywalk *pw, uint64_t obj, char *buf, size_t n) {
    const struct pywalk_fields *f = &pywalk_offsets(pw)->f;
    uint8_t head[128], piece[PIECE];
    uint32_t state, kind;
    uint64_t length, data;
    size_t out = 0;
    int rc;

    if (n == 0)
        return -EINVAL;
    buf[0] = '\0';
    if (!pywalk_plausible(obj) || f->str_state + 4 > sizeof head || f->str_length + 8 > sizeof head)
        return -EBADMSG;
    rc = mem_read(pw, obj, head, f->str_state + 4);
    if (rc != 0)
        return rc;
    length = load64(head + f->str_length);
    state = load32(head + f->str_state);
    kind = (state & f->str_kind_mask) / (f->str_kind_mask & -f->str_kind_mask);
    if ((kind != 1 && kind != 2 && kind != 4) || length > (1ull << 40))
        return -EBADMSG;
    data = obj + f->str_ascii_data;
    if ((state & f->str_ascii_mask) == 0)
        data = obj + f->str_compact_data;
    if ((state & f->str_compact_mask) == 0) {
        rc = mem_u64(pw, obj + f->str_any, &data);
        if (rc == 0 && !pywalk_plausible(data))
            rc = -EBADMSG;
    }
    while (rc == 0 && length > 0 && out + 1 < n) {
        size_t count = length < PIECE / kind ? length : PIECE / kind, i;
        if (count > n - 1 - out) /* a character takes a byte at least */
            count = n - 1 - out;
        rc = mem_read(pw, data, piece, count * kind);
        for (i = 0; rc == 0 && i < count; i++) {
            size_t len = put_utf8(get_char(piece + i * kind, kind), buf + out, n - 1 - out);
            if (len == 0) {
                length = count; /* full: ends the outer loop */
                break;
            }
            out += len;
        }
        length -= count;
        data += count * kind;
    }
    buf[rc == 0 ? out : 0] = '\0';
    return rc == 0 ? (int)out : rc;
}
