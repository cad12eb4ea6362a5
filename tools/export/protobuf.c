/* SPDX-License-Identifier: Apache-2.0 */
#include "protobuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../traces/hash.h"
#include "../../traces/utf8.h"
#include "../../traces/visible.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2 };

#define VARINT_MOST 10

void pb_free(struct pb *b) {
    free(b->bytes);
    *b = (struct pb){0};
}

int pb_write(struct pb *b, FILE *out) {
    if (!b->err && b->n && fwrite(b->bytes, 1, b->n, out) != b->n)
        b->err = errno ? -errno : -EIO;
    b->n = 0;
    return b->err;
}

/* Makes room for n more bytes and returns it; NULL after an error. */
static uint8_t *more(struct pb *b, size_t n) {
    if (b->err)
        return NULL;
    if (b->cap - b->n < n) {
        size_t cap = b->cap ? b->cap * 2 : 4096;
        while (cap - b->n < n)
            cap *= 2;
        uint8_t *bytes = realloc(b->bytes, cap);
        if (!bytes) {
            b->err = -ENOMEM;
            return NULL;
        }
        b->bytes = bytes;
        b->cap = cap;
    }
    return b->bytes + b->n;
}

static size_t varint(uint8_t *p, uint64_t v) {
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        p[n++] = (uint8_t)v | 0x80;
    p[n++] = (uint8_t)v;
    return n;
}

void pb_packed(struct pb *b, uint64_t v) {
    uint8_t *p = more(b, VARINT_MOST);

    if (p)
        b->n += varint(p, v);
}

static void tag(struct pb *b, unsigned field, unsigned wire) {
    pb_packed(b, (uint64_t)field << 3 | wire);
}

void pb_uint(struct pb *b, unsigned field, uint64_t v) {
    tag(b, field, WIRE_VARINT);
    pb_packed(b, v);
}

void pb_int(struct pb *b, unsigned field, int64_t v) {
    pb_uint(b, field, (uint64_t)v);
}

void pb_fixed64(struct pb *b, unsigned field, uint64_t v) {
    tag(b, field, WIRE_FIXED64);
    uint8_t *p = more(b, 8);
    if (!p)
        return;
    for (int i = 0; i < 8; i++) /* little endian, whatever the machine */
        p[i] = (uint8_t)(v >> 8 * i);
    b->n += 8;
}

void pb_double(struct pb *b, unsigned field, double v) {
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    pb_fixed64(b, field, bits);
}

void pb_bytes(struct pb *b, unsigned field, const void *bytes, size_t n) {
    tag(b, field, WIRE_LENGTH);
    pb_packed(b, n);
    uint8_t *p = more(b, n);
    if (!p)
        return;
    if (n)
        memcpy(p, bytes, n);
    b->n += n;
}

void pb_text(struct pb *b, unsigned field, const char *text) {
    const uint8_t *p = (const uint8_t *)(text ? text : "");
    size_t left = strlen((const char *)p), len;
    uint32_t c;

    size_t begun = pb_begin(b, field);
    for (; left; p += len, left -= len) {
        uint8_t *to = more(b, 4);
        if (!to)
            return;
        len = utf8_char(p, left, &c);
        int as_it_is = len && visible_char(c);
        memcpy(to, as_it_is ? (const char *)p : "\xef\xbf\xbd", as_it_is ? len : 3);
        b->n += as_it_is ? len : 3;
        len = len ? len : 1;
    }
    pb_end(b, begun);
}

/* One byte is kept for the length, which is enough for most messages; if the length takes more, pb_end() moves the bytes after it. */
size_t pb_begin(struct pb *b, unsigned field) {
    tag(b, field, WIRE_LENGTH);
    if (more(b, 1))
        b->n++;
    return b->n;
}

void pb_end(struct pb *b, size_t begun) {
    uint8_t length[VARINT_MOST];

    if (b->err)
        return;
    size_t size = b->n - begun, n = varint(length, size);
    if (n > 1) {
        if (!more(b, n))
            return;
        memmove(b->bytes + begun + n - 1, b->bytes + begun, size);
        b->n += n - 1;
    }
    memcpy(b->bytes + begun - 1, length, n);
}

/* Strings are told apart by this hash alone: with some millions of them, two with the same 64 bits are practically impossible. */
static uint64_t hash(const char *text) {
    uint64_t h = hash_text(HASH_START, text);

    return h ? h : 1;
}

uint32_t pb_name(struct pb_names *s, const char *text, int *is_new) {
    *is_new = 0;
    if (!text || !*text)
        return 0;
    uint64_t key = hash(text);
    uint32_t number = map_find(&s->numbers, key);
    if (number)
        return number;
    *is_new = 1;
    if (map_put(&s->numbers, key, ++s->n) < 0)
        s->err = -ENOMEM;
    return s->n;
}

void pb_names_free(struct pb_names *s) {
    map_free(&s->numbers);
}

void pb_strings_begin(struct pb_strings *s, struct pb *b, unsigned field) {
    *s = (struct pb_strings){.b = b, .field = field};
    pb_text(b, field, "");
}

uint32_t pb_string(struct pb_strings *s, const char *text) {
    int is_new;
    uint32_t place = pb_name(&s->names, text, &is_new);

    if (is_new)
        pb_text(s->b, s->field, text);
    if (s->names.err)
        s->b->err = s->names.err;
    return place;
}

void pb_strings_free(struct pb_strings *s) {
    pb_names_free(&s->names);
}
