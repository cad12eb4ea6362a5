/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer's two ends: text into a buffer of fixed size, memory out of a budget. */
#include "object_render.h"

#include <stdarg.h>
#include <stdio.h>

#define TAIL 4 /* room that is kept for "..." and NUL */

static int counted_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct render *r = ctx;

    if (r->full || r->limit.reads == 0) {
        r->full = true;
        return -E2BIG;
    }
    r->limit.reads--;
    if (addr < PYWALK_PAGE || addr >= 1ull << 47 || n > PYWALK_PAGE)
        return -EFAULT;
    return r->mem.read(r->mem.ctx, addr, buf, n) == 0 ? 0 : -EFAULT;
}

static uint32_t choose(uint32_t wanted, uint32_t usual, uint32_t most) {
    return wanted == 0 ? usual : wanted < most ? wanted : most;
}

void obj_begin(struct render *r, const struct pywalk_objects *ob,
               const struct pywalk_limits *limits, char *buf, size_t n) {
    static const struct pywalk_limits none;

    if (limits == NULL)
        limits = &none;
    r->f = ob->f;
    r->mem = ob->pw->mem;
    r->pw = *ob->pw;
    r->pw.mem = (struct pywalk_mem){counted_read, r};
    r->limit.depth = choose(limits->depth, 4, PYWALK_MAX_DEPTH);
    r->limit.items = choose(limits->items, 20, 1 << 24);
    r->limit.string = choose(limits->string, 200, 1 << 24);
    r->limit.reads = choose(limits->reads, 5000, 1 << 24);
    r->buf = buf;
    r->room = n - TAIL;
    r->n = 0;
    r->full = false;
    r->depth = 0;
}

int obj_end(struct render *r) {
    if (r->full) {
        memcpy(r->buf + r->n, "...", 3);
        r->n += 3;
    }
    r->buf[r->n] = '\0';
    return (int)r->n;
}

void obj_put_bytes(struct render *r, const char *s, size_t n) {
    if (r->full)
        return;
    if (n > r->room - r->n) {
        n = r->room - r->n;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) /* not within a character */
            n--;
        r->full = true;
    }
    memcpy(r->buf + r->n, s, n);
    r->n += n;
}

void obj_put(struct render *r, const char *s) {
    obj_put_bytes(r, s, strlen(s));
}

/* Bytes of a character that is UTF-8 and no control character, or 0. */
static size_t character(const unsigned char *s) {
    size_t n = s[0] >= 0x20 && s[0] < 0x7f   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) ||
        (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

void obj_put_clean(struct render *r, const char *s) {
    while (*s != '\0') {
        size_t n = character((const unsigned char *)s);
        obj_put_bytes(r, n > 0 ? s : "?", n > 0 ? n : 1);
        s += n > 0 ? n : 1;
    }
}

void obj_put_format(struct render *r, const char *fmt, ...) {
    char text[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        obj_put_bytes(r, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void obj_put_utf8(struct render *r, uint32_t c) {
    char s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    if (n == 1) {
        s[0] = (char)c;
    } else {
        static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t i = n - 1; i > 0; i--, c >>= 6)
            s[i] = (char)(0x80 | (c & 0x3f));
        s[0] = (char)(first[n] | c);
    }
    obj_put_bytes(r, s, n);
}

void obj_put_bad(struct render *r, const char *what, uint64_t addr) {
    obj_put_format(r, "<%s at 0x%llx>", what, (unsigned long long)addr);
}

void obj_put_error(struct render *r, int rc, uint64_t addr) {
    if (rc == -E2BIG)
        r->full = true;
    else
        obj_put_bad(r, rc == -EFAULT ? "unreadable" : "corrupt", addr);
}

int obj_get_pointer(struct render *r, uint64_t addr, uint64_t *v) {
    int rc = get_u64(r, addr, v);

    return rc == 0 && *v != 0 && !pywalk_plausible(*v) ? -EBADMSG : rc;
}

int obj_get_count(struct render *r, uint64_t addr, uint64_t *v) {
    int rc = get_u64(r, addr, v);

    return rc == 0 && *v >= 1ull << 40 ? -EBADMSG : rc;
}

bool obj_enter(struct render *r, uint64_t addr) {
    if (r->depth >= r->limit.depth)
        return false;
    for (uint32_t i = 0; i < r->depth; i++)
        if (r->open[i] == addr)
            return false;
    r->open[r->depth++] = addr;
    return true;
}

void obj_leave(struct render *r) {
    r->depth--;
}
