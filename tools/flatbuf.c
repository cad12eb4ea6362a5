/* SPDX-License-Identifier: Apache-2.0 */
#include "flatbuf.h"

#include <stdlib.h>
#include <string.h>

#define FIELDS 16
#define ROOT   8 /* bytes before the first table: the root's offset, and four to align to eight */

void flatbuf_free(struct flatbuf *b) {
    free(b->p);
    *b = (struct flatbuf){0};
}

void flatbuf_reset(struct flatbuf *b) {
    b->n = 0;
    b->failed = 0;
}

/* Appends n zeros at the next place that is `off` after a multiple of `align`. Returns that place, or 0 without memory. */
static size_t make_space(struct flatbuf *b, size_t n, size_t align, size_t off) {
    size_t at = b->n ? b->n : ROOT;

    while (at % align != off)
        at++;
    if (at + n > b->cap) {
        size_t cap = (at + n) * 2;
        uint8_t *more = b->failed ? NULL : realloc(b->p, cap);
        if (!more) {
            b->failed = 1;
            return 0;
        }
        b->p = more;
        b->cap = cap;
    }
    memset(b->p + b->n, 0, at + n - b->n);
    b->n = at + n;
    return at;
}

static void put(struct flatbuf *b, size_t at, const void *value, size_t n) {
    if (!b->failed)
        memcpy(b->p + at, value, n);
}

static unsigned bytes_of(int size) {
    return size == FLATBUF_OFFSET ? 4 : (unsigned)size;
}

/*
 * Writes the vtable first (its own size, the table's size, the place of each field in the table), then the table: the distance back to the vtable,
 * and the fields. The widest fields come first: as the table begins four bytes after a multiple of eight, that leaves no gaps.
 */
size_t flatbuf_table(struct flatbuf *b, const struct flatbuf_field *field, unsigned n, size_t *at) {
    uint16_t places[2 + FIELDS] = {0}, end = 4;

    for (unsigned size = 8; size; size /= 2)
        for (unsigned i = 0; i < n && i < FIELDS; i++) {
            if (bytes_of(field[i].size) != size)
                continue;
            places[2 + i] = end;
            end = (uint16_t)(end + size);
        }
    places[0] = (uint16_t)(4 + 2 * n);
    places[1] = end;
    size_t there = make_space(b, places[0], 2, 0);
    put(b, there, places, places[0]);
    size_t table = make_space(b, end, 8, 4);
    int32_t back = (int32_t)(table - there);
    put(b, table, &back, sizeof back);
    for (unsigned i = 0; i < n && i < FIELDS; i++) {
        if (at)
            at[i] = table + places[2 + i];
        if (field[i].size && field[i].size != FLATBUF_OFFSET)
            put(b, table + places[2 + i], &field[i].value, (size_t)field[i].size);
    }
    return table;
}

size_t flatbuf_vector(struct flatbuf *b, const void *elements, size_t n, size_t size,
                      size_t align) {
    uint32_t count = (uint32_t)n;

    align = align < 4 ? 4 : align;
    size_t at = make_space(b, 4 + n * size, align, (align - 4) % align);
    put(b, at, &count, sizeof count);
    if (elements && n)
        put(b, at + 4, elements, n * size);
    return at;
}

size_t flatbuf_text(struct flatbuf *b, const char *text) {
    size_t at = flatbuf_vector(b, text, strlen(text), 1, 4);

    make_space(b, 1, 1, 0); /* a zero byte ends the text; its length does not count it */
    return at;
}

void flatbuf_point(struct flatbuf *b, size_t at, size_t to) {
    uint32_t offset = (uint32_t)(to - at);

    put(b, at, &offset, sizeof offset);
}

void flatbuf_root(struct flatbuf *b, size_t table) {
    flatbuf_point(b, 0, table);
}
