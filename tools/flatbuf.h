/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flatbuf.h - a FlatBuffer, written front to back: tables, vectors and texts, as flatbuffers.dev's "internals" page lays them out.
 *
 *     struct flatbuf b = {0};
 *     size_t at[2];
 *     flatbuf_root(&b, flatbuf_table(&b, (struct flatbuf_field[]){{4, 7}, {FLATBUF_OFFSET}}, 2, at));
 *     flatbuf_point(&b, at[1], flatbuf_text(&b, "name"));       // an offset is set when what it leads to is there
 *     if (b.failed) ... else use(b.p, b.n);
 *     flatbuf_free(&b);
 *
 * The buffer begins with room for its root. Everything lies at a multiple of its own size, counted from the begin. Out of memory is
 * sticky; what is written then goes nowhere.
 */
#ifndef PROBING_TOOLS_FLATBUF_H
#define PROBING_TOOLS_FLATBUF_H

#include <stddef.h>
#include <stdint.h>

#define FLATBUF_OFFSET                                                                             \
    5 /* the size of a field that leads to a table, vector or text: 4 bytes, set later */

struct flatbuf {
    uint8_t *p;
    size_t n, cap;
    int failed;
};

/* size: 0 absent, 1, 2, 4, 8 or FLATBUF_OFFSET. */
struct flatbuf_field {
    int size;
    int64_t value;
};

void flatbuf_free(struct flatbuf *b);
/* Empty again, for the next one. */
void flatbuf_reset(struct flatbuf *b);
/* A table of n fields (at most 16); its place, and in at[i], where at is not NULL, that of each field. */
size_t flatbuf_table(struct flatbuf *b, const struct flatbuf_field *field, unsigned n, size_t *at);
/* A vector of n elements of `size` bytes, whose elements lie at a multiple of `align`; NULL: zeros. Its place; the elements follow 4 bytes
 * after it. */
size_t flatbuf_vector(struct flatbuf *b, const void *elements, size_t n, size_t size, size_t align);
size_t flatbuf_text(struct flatbuf *b, const char *text);
/* The offset at `at` leads to `to`, which lies behind it. */
void flatbuf_point(struct flatbuf *b, size_t at, size_t to);
void flatbuf_root(struct flatbuf *b, size_t table);

#endif
