/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flatbuf.h - writes a FlatBuffer front to back: tables, vectors and texts, as laid out on flatbuffers.dev's "internals" page.
 *
 *     struct flatbuf b = {0};
 *     size_t at[2];
 *     flatbuf_root(&b, flatbuf_table(&b, (struct flatbuf_field[]){{4, 7}, {FLATBUF_OFFSET}}, 2, at));
 *     flatbuf_point(&b, at[1], flatbuf_text(&b, "name"));       // an offset is set once its target exists
 *     if (b.failed) ... else use(b.p, b.n);
 *     flatbuf_free(&b);
 *
 * The buffer begins with space for the root offset. Everything is aligned to a multiple of its own size, counted from the beginning. Out of
 * memory is sticky; what is written after that is dropped.
 */
#ifndef PROBING_TOOLS_FLATBUF_H
#define PROBING_TOOLS_FLATBUF_H

#include <stddef.h>
#include <stdint.h>

#define FLATBUF_OFFSET                                                                             \
    5 /* size of a field that refers to a table, vector or text: an offset of 4 bytes, set later */

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
/* Empties the buffer for the next FlatBuffer. */
void flatbuf_reset(struct flatbuf *b);
/* Writes a table of n fields (at most 16). Returns its place and, when `at` is not NULL, sets at[i] to the place of each field. */
size_t flatbuf_table(struct flatbuf *b, const struct flatbuf_field *field, unsigned n, size_t *at);
/* Writes a vector of n elements of `size` bytes, aligned to a multiple of `align`; NULL: zeros. Returns its place; the elements begin 4
 * bytes after it. */
size_t flatbuf_vector(struct flatbuf *b, const void *elements, size_t n, size_t size, size_t align);
size_t flatbuf_text(struct flatbuf *b, const char *text);
/* Makes the offset at `at` refer to `to`, which must lie behind it. */
void flatbuf_point(struct flatbuf *b, size_t at, size_t to);
void flatbuf_root(struct flatbuf *b, size_t table);

#endif
