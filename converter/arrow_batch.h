/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_batch.h - collects rows in columns, and turns these into one Arrow array.
 *
 *     static const struct arrow_field fields[] = {{"ts", ARROW_TIME, "when"}, {"func", ARROW_NAME, "innermost"}};
 *     struct arrow_batch b;
 *     int err = arrow_batch_init(&b, fields, 2);
 *     err = arrow_put(&b.col[0], ns);  err = arrow_put_text(&b.col[1], "f", 1);  b.n++;      // a row
 *     err = arrow_batch_export(&b, &array);      // the buffers move into the array, the batch is empty again
 *     err = arrow_schema_export(fields, 2, &schema);
 *     arrow_batch_free(&b);
 *
 * Each row puts exactly one value into every column. One thread at a time; what was exported belongs to its holder alone. Functions return
 * 0 or -ENOMEM, and -EFBIG where a batch grows over 2 GiB of text.
 */
#ifndef PROBING_CONVERTER_ARROW_BATCH_H
#define PROBING_CONVERTER_ARROW_BATCH_H

#include <stddef.h>

#include "arrow_abi.h"
#include "arrow_names.h"

enum arrow_type {
    ARROW_INT,   /* int64 */
    ARROW_FLAG,  /* int8: 0 or 1 */
    ARROW_REAL,  /* double */
    ARROW_TIME,  /* timestamp, ns, UTC */
    ARROW_TEXT,  /* utf8 */
    ARROW_NAME,  /* utf8, dictionary-encoded: few different ones */
    ARROW_BYTES, /* binary */
    ARROW_INTS,  /* list of int64 */
    ARROW_NAMES, /* list of names */
};

struct arrow_field {
    const char *name;
    enum arrow_type type;
    const char *about; /* becomes the field's metadata `description`; may be NULL */
};

struct arrow_column {
    enum arrow_type type;
    size_t n, cap, nulls;
    size_t before;         /* number of rows in the previous batch */
    uint8_t *values;       /* numbers, indices of names, or text */
    uint8_t *valid;        /* one bit for each row; NULL while no value is null */
    int32_t *offsets;      /* of text and lists */
    size_t used, capacity; /* text: bytes; lists: items */
    struct arrow_names *names;
    struct arrow_pool *pool; /* the batch's */
};

struct arrow_batch {
    struct arrow_column *col;
    size_t ncols, n; /* n: rows, counted by the caller */
    struct arrow_pool *pool;
};

int arrow_batch_init(struct arrow_batch *b, const struct arrow_field *fields, size_t n);
void arrow_batch_free(struct arrow_batch *b);
int arrow_batch_export(struct arrow_batch *b, struct ArrowArray *out);
int arrow_schema_export(const struct arrow_field *fields, size_t n, struct ArrowSchema *out);
/* Returns the number of bytes that the batch holds now. */
size_t arrow_batch_bytes(const struct arrow_batch *b);

int arrow_grow(struct arrow_column *c); /* for arrow_put() */
int arrow_put_null(struct arrow_column *c);
/* For many rows of numbers or names at a time: arrow_reserve() makes space for n more, whose values the caller writes at arrow_end() and
 * adds to c->n; arrow_nulls() then marks the rows from `first` on whose null[i] is not 0 as null. */
int arrow_reserve(struct arrow_column *c, size_t n);
int arrow_nulls(struct arrow_column *c, size_t first, const uint8_t *null, size_t n);
int arrow_put_real(struct arrow_column *c, double v);
/* Puts a TEXT, NAME or BYTES value of n bytes. */
int arrow_put_text(struct arrow_column *c, const void *p, size_t n);
/* For lists: call arrow_item() for each item, then arrow_put_list() once. For NAMES, v is an index given by arrow_names_put(c->names, ...). */
int arrow_item(struct arrow_column *c, int64_t v);
int arrow_put_list(struct arrow_column *c);

static inline void *arrow_end(struct arrow_column *c) {
    return c->values + c->n * (c->type == ARROW_NAME ? 4 : c->type == ARROW_FLAG ? 1 : 8);
}

/* Puts the number of an INT, FLAG or TIME column, or the index of a NAME. */
static inline int arrow_put(struct arrow_column *c, int64_t v) {
    int err = 0;

    if (c->n == c->cap && (err = arrow_grow(c)) != 0)
        return err;
    if (c->type == ARROW_NAME)
        ((int32_t *)(void *)c->values)[c->n++] = (int32_t)v;
    else if (c->type == ARROW_FLAG)
        c->values[c->n++] = (uint8_t)v;
    else
        ((int64_t *)(void *)c->values)[c->n++] = v;
    return 0;
}

#endif
