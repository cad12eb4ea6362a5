/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reserve(struct text *t, size_t more) {
    size_t cap = t->cap ? t->cap : 1024;
    char *s;

    if (t->failed)
        return 0;
    while (cap < t->n + more + 1)
        cap *= 2;
    if (cap == t->cap)
        return 1;
    s = realloc(t->s, cap);
    if (!s) {
        t->failed = 1;
        return 0;
    }
    t->s = s;
    t->cap = cap;
    return 1;
}

static void add_bytes(struct text *t, const char *s, size_t n) {
    if (!reserve(t, n))
        return;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void text_add(struct text *t, const char *fmt, ...) {
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        t->failed = 1;
    else if (reserve(t, (size_t)n)) {
        vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

/* Length of the valid UTF-8 character at s, 0 when it is not one. */
static size_t utf8(const unsigned char *s) {
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

void text_json(struct text *t, const char *s) {
    if (!s) {
        add_bytes(t, "null", 4);
        return;
    }
    add_bytes(t, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8(p);

        if (*p == '"' || *p == '\\')
            text_add(t, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            text_add(t, "\\u%04x", *p);
        else if (n == 0)
            add_bytes(t, "\\ufffd", 6);
        else
            add_bytes(t, (const char *)p, n);
        p += n ? n : 1;
    }
    add_bytes(t, "\"", 1);
}

void text_plain(struct text *t, const char *s) {
    while (*s) {
        size_t n = 0;

        while ((unsigned char)s[n] >= ' ' && s[n] != 0x7f)
            n++;
        add_bytes(t, s, n);
        s += n;
        if (*s) {
            add_bytes(t, "?", 1);
            s++;
        }
    }
}

char *text_take(struct text *t) {
    char *s = t->failed ? NULL : t->s;

    if (t->failed)
        free(t->s);
    else if (!s)
        s = calloc(1, 1);
    *t = (struct text){0};
    return s;
}

void text_free(struct text *t) {
    free(t->s);
    *t = (struct text){0};
}
