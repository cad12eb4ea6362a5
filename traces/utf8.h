/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - decodes untrusted text: names from a target, bytes of a trace.
 *
 *     for (; n; p += len ? len : 1, n -= len ? len : 1)
 *         if (!(len = utf8_char(p, n, &c))) ... this byte is no UTF-8
 */
#ifndef PROBING_TRACES_UTF8_H
#define PROBING_TRACES_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at the start of n > 0 bytes into *c. Returns its length in bytes; 0 when it is no valid UTF-8 (RFC 3629: no
 * surrogates, shortest form only). In text that ends in NUL nothing behind the NUL is read, so n may be 4 there. */
static inline size_t utf8_char(const void *text, size_t n, uint32_t *c) {
    const uint8_t *p = text;
    size_t len = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    if (len == 0 || len > n)
        return 0;
    *c = len == 1 ? *p : *p & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *c = *c << 6 | (p[i] & 0x3fu);
    }
    /* no surrogates, no overlong forms, nothing beyond the last character (U+10FFFF) */
    if ((*c >= 0xd800 && *c < 0xe000) || (len == 3 && *c < 0x800) || (len == 4 && *c < 0x10000) ||
        *c > 0x10ffff)
        return 0;
    return len;
}

#endif
