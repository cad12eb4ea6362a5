/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/cfi_cursor.h"

#include <errno.h>
#include <string.h>

void cfi_cursor_set(struct cfi_cursor *c, const struct cfi_memory *mem, uint64_t at, uint64_t end) {
    c->mem = mem;
    c->at = at;
    c->end = end;
    c->have = 0;
    c->base = 0;
    c->status = 0;
}

void cfi_take(struct cfi_cursor *c, void *buf, size_t n) {
    if (!c->status && (c->at > c->end || n > c->end - c->at))
        c->status = -EBADMSG;
    if (!c->status && (c->at < c->base || c->at + n > c->base + c->have)) {
        uint64_t want = c->end - c->at;
        if (want > sizeof c->window)
            want = sizeof c->window;
        c->have = 0;
        c->base = c->at;
        c->status = c->mem->read(c->mem->ctx, c->at, c->window, want);
        if (!c->status)
            c->have = (uint32_t)want;
    }
    if (c->status) {
        memset(buf, 0, n);
        return;
    }
    memcpy(buf, c->window + (c->at - c->base), n);
    c->at += n;
}

uint64_t cfi_take_u(struct cfi_cursor *c, size_t n) {
    uint64_t v = 0;
    cfi_take(c, &v, n); /* little-endian, as x86-64 is */
    return v;
}

int64_t cfi_take_s(struct cfi_cursor *c, size_t n) {
    uint64_t v = cfi_take_u(c, n);
    unsigned shift = 64 - 8 * (unsigned)n;
    return (int64_t)(v << shift) >> shift;
}

uint64_t cfi_take_uleb(struct cfi_cursor *c) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && !c->status; shift += 7) {
        uint64_t b = cfi_take_byte(c);
        if (shift < 64)
            v |= (b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    c->status = c->status ? c->status : -EBADMSG;
    return 0;
}

int64_t cfi_take_sleb(struct cfi_cursor *c) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && !c->status; shift += 7) {
        uint64_t b = cfi_take_byte(c);
        if (shift < 64)
            v |= (b & 0x7f) << shift;
        if (!(b & 0x80)) {
            if ((b & 0x40) && shift + 7 < 64)
                v |= ~0ull << (shift + 7);
            return (int64_t)v;
        }
    }
    c->status = c->status ? c->status : -EBADMSG;
    return 0;
}

uint64_t cfi_take_encoded(struct cfi_cursor *c, uint8_t enc, uint64_t data) {
    uint64_t here = c->at, v;
    switch (enc & 0x0f) {
    case 0x00: /* absptr */
    case 0x04: /* udata8 */
    case 0x0c: /* sdata8 */
        v = cfi_take_u(c, 8);
        break;
    case 0x01:
        v = cfi_take_uleb(c);
        break;
    case 0x02:
        v = cfi_take_u(c, 2);
        break;
    case 0x03:
        v = cfi_take_u(c, 4);
        break;
    case 0x09:
        v = (uint64_t)cfi_take_sleb(c);
        break;
    case 0x0a:
        v = (uint64_t)cfi_take_s(c, 2);
        break;
    case 0x0b:
        v = (uint64_t)cfi_take_s(c, 4);
        break;
    default:
        c->status = c->status ? c->status : -ENOTSUP;
        return 0;
    }
    switch (enc & 0x70) {
    case 0x00:
        break;
    case 0x10:
        v += here;
        break;
    case 0x30:
        v += data;
        break;
    default:
        c->status = c->status ? c->status : -ENOTSUP;
        return 0;
    }
    if (enc & 0x80) { /* indirect */
        uint64_t p = 0;
        if (!c->status)
            c->status = c->mem->read(c->mem->ctx, v, &p, sizeof p);
        v = p;
    }
    return v;
}
