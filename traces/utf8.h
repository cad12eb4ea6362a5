/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - characters of text that nobody vouches for: names of a target's, a trace's bytes.
 *
 *     for (; n; p += len ? len : 1, n -= len ? len : 1)
 *         if (!(len = utf8_char(p, n, &c))) ... this byte is no UTF-8
 */
#ifndef PROBING_TRACES_UTF8_H
#define PROBING_TRACES_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The character that the n > 0 bytes at p begin with into *c, and how many bytes it takes; 0: it is none (RFC 3629: no surrogates, the
 * shortest form). Of text that ends in NUL nothing behind that is read: n may be 4 there. */
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
    /* Surrogates, longer forms than needed, beyond the last character. */
    if ((*c >= 0xd800 && *c < 0xe000) || (len == 3 && *c < 0x800) || (len == 4 && *c < 0x10000) ||
        *c > 0x10ffff)
        return 0;
    return len;
}

#endif
