/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/utf8.h"

/* Returns how many bytes from the first one on are ASCII and not NUL: nearly always all. */
static size_t plain_run(const uint8_t *p, size_t n) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t w;
    size_t i = 0;

    for (; i + sizeof w <= n; i += sizeof w) {
        memcpy(&w, p + i, sizeof w);
        if ((w | (w - ones)) & ones << 7) /* a byte above 127, or one that is 0 */
            break;
    }
    while (i < n && p[i] - 1u < 127)
        i++;
    return i;
}

char *text_utf8(const void *bytes, size_t n, size_t *len) {
    const uint8_t *p = bytes;
    char *out = malloc(n * 3 + 1), *q = out;
    uint32_t c;

    if (!out)
        return NULL;
    for (size_t i = 0; i < n;) {
        size_t run = plain_run(p + i, n - i);
        memcpy(q, p + i, run);
        q += run;
        i += run;
        if (i == n)
            break;
        size_t k = p[i] ? utf8_char(p + i, n - i, &c) : 0;
        if (k) {
            memcpy(q, p + i, k);
        } else {
            memcpy(q, "\xef\xbf\xbd", 3);
        }
        q += k ? k : 3;
        i += k ? k : 1;
    }
    *q = 0;
    if (len)
        *len = (size_t)(q - out);
    return out;
}

static int is_plain(const char *s, size_t n) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./:=,+@%^";

    for (size_t i = 0; i < n; i++)
        if (!(s[i] & 0x80) && !memchr(plain, s[i], sizeof plain - 1))
            return 0;
    return n > 0;
}

static int is_nul(const char *s, size_t n) {
    return !*s && !memcmp(s, s + 1, n - 1);
}

/* A process that gives itself a title (setproctitle) writes it over its arguments: text, and NUL bytes up to where they ended. */
char *text_command(const void *bytes, size_t n) {
    const char *p = bytes;
    char *line = malloc(n * 4 + 4), *q = line;

    if (!line)
        return NULL;
    if (n && p[n - 1] == 0)
        n--;
    const char *nul = n ? memchr(p, 0, n) : NULL;
    if (nul && nul != p && is_nul(nul, n - (size_t)(nul - p))) {
        free(line);
        return text_utf8(p, (size_t)(nul - p), NULL);
    }
    for (size_t i = 0; i <= n && n;) {
        const char *end = memchr(p + i, 0, n - i);
        size_t len = end ? (size_t)(end - (p + i)) : n - i;
        if (q != line)
            *q++ = ' ';
        if (is_plain(p + i, len)) {
            memcpy(q, p + i, len);
            q += len;
        } else {
            *q++ = '\'';
            for (size_t k = 0; k < len; k++) {
                if (p[i + k] == '\'') {
                    memcpy(q, "'\\''", 4);
                    q += 4;
                } else {
                    *q++ = p[i + k];
                }
            }
            *q++ = '\'';
        }
        i += len + 1;
    }
    char *out = text_utf8(line, (size_t)(q - line), NULL);
    free(line);
    return out;
}

char *text_hex(const void *bytes, size_t n) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = bytes;
    char *out = malloc(2 * n + 1);

    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = 0;
    return out;
}

void text_python(uint64_t v, char *buf) {
    unsigned major = v >> 24 & 0xff, minor = v >> 16 & 0xff, micro = v >> 8 & 0xff;
    unsigned level = v >> 4 & 0xf, serial = v & 0xf;

    buf[0] = 0;
    if (v == 0)
        return;
    int n = snprintf(buf, 32, "%u.%u.%u", major, minor, micro);
    if (level != 0xf)
        snprintf(buf + n, 32 - (size_t)n, "%s%u",
                 level == 0xa   ? "a"
                 : level == 0xb ? "b"
                                : "rc",
                 serial);
}
