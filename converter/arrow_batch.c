/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_pool.h"

#define FIRST 1024 /* number of rows that a column first has space for */

static const struct {
    const char *format; /* of the column, or of a list's items */
    uint8_t width;      /* bytes for each row in `values`; 1 for bytes of text */
    uint8_t offsets, list, names;
} types[] = {
    [ARROW_INT] = {"l", 8, 0, 0, 0},   [ARROW_FLAG] = {"c", 1, 0, 0, 0},
    [ARROW_REAL] = {"g", 8, 0, 0, 0},  [ARROW_TIME] = {"tsn:UTC", 8, 0, 0, 0},
    [ARROW_TEXT] = {"u", 1, 1, 0, 0},  [ARROW_NAME] = {"i", 4, 0, 0, 1},
    [ARROW_BYTES] = {"z", 1, 1, 0, 0}, [ARROW_INTS] = {"l", 8, 1, 1, 0},
    [ARROW_NAMES] = {"i", 4, 1, 1, 1},
};

/* ---- rows in ---- */

/* Replaces the buffer by one of n bytes that begins with the first `used` bytes of the old one. */
static int regrow(struct arrow_column *c, void *p, size_t used, size_t n) {
    size_t cap;
    void *more = arrow_pool_take(c->pool, n, &cap);

    if (!more)
        return -ENOMEM;
    if (used)
        memcpy(more, *(void **)p, used);
    arrow_pool_give(*(void **)p);
    *(void **)p = more;
    return 0;
}

int arrow_grow(struct arrow_column *c) {
    /* at first as many rows as the previous batch had */
    size_t cap = c->cap ? c->cap * 2 : c->before > FIRST ? c->before : FIRST;
    size_t old = (c->cap + 7) / 8, bytes = (cap + 7) / 8, width = types[c->type].width;
    int err = 0;

    if (types[c->type].offsets)
        err = regrow(c, &c->offsets, c->cap ? (c->n + 1) * sizeof *c->offsets : 0,
                     (cap + 1) * sizeof *c->offsets);
    else
        err = regrow(c, &c->values, c->n * width, cap * width);
    if (!err && c->valid && !(err = regrow(c, &c->valid, old, bytes)))
        memset(c->valid + old, 0xff, bytes - old);
    if (!err)
        c->cap = cap;
    return err;
}

int arrow_reserve(struct arrow_column *c, size_t n) {
    int err = 0;

    while (!err && c->cap < c->n + n)
        err = arrow_grow(c);
    return err;
}

static int all_valid(struct arrow_column *c) {
    if (c->valid)
        return 0;
    if (regrow(c, &c->valid, 0, (c->cap + 7) / 8) != 0)
        return -ENOMEM;
    memset(c->valid, 0xff, (c->cap + 7) / 8);
    return 0;
}

int arrow_nulls(struct arrow_column *c, size_t first, const uint8_t *null, size_t n) {
    size_t i = 0;

    while (i < n && !null[i])
        i++;
    if (i == n)
        return 0;
    if (all_valid(c) != 0)
        return -ENOMEM;
    for (; i < n; i++)
        if (null[i]) {
            c->valid[(first + i) / 8] &= (uint8_t) ~(1u << (first + i) % 8);
            c->nulls++;
        }
    return 0;
}

/* Makes space for n more bytes of text, or items of lists. */
static int space(struct arrow_column *c, size_t n) {
    size_t capacity = c->capacity ? c->capacity : FIRST;

    if (n > INT32_MAX - c->used)
        return -EFBIG;
    while (capacity < c->used + n)
        capacity *= 2;
    if (capacity == c->capacity)
        return 0;
    int err =
        regrow(c, &c->values, c->used * types[c->type].width, capacity * types[c->type].width);
    if (!err)
        c->capacity = capacity;
    return err;
}

int arrow_put_list(struct arrow_column *c) {
    int err = c->n == c->cap ? arrow_grow(c) : 0;

    if (err)
        return err;
    c->offsets[0] = 0;
    c->offsets[++c->n] = (int32_t)c->used;
    return 0;
}

int arrow_put_null(struct arrow_column *c) {
    int err = types[c->type].offsets  ? arrow_put_list(c)
              : c->type == ARROW_REAL ? arrow_put_real(c, 0)
                                      : arrow_put(c, 0);

    if (err)
        return err;
    if ((err = all_valid(c)) != 0)
        return err;
    c->valid[(c->n - 1) / 8] &= (uint8_t) ~(1u << (c->n - 1) % 8);
    c->nulls++;
    return 0;
}

int arrow_put_real(struct arrow_column *c, double v) {
    int64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return arrow_put(c, bits);
}

int arrow_put_text(struct arrow_column *c, const void *p, size_t n) {
    int32_t index;
    int err;

    if (c->type == ARROW_NAME)
        return (err = arrow_names_put(c->names, p, n, &index)) ? err : arrow_put(c, index);
    if ((err = space(c, n)) != 0)
        return err;
    if (n)
        memcpy(c->values + c->used, p, n);
    c->used += n;
    return arrow_put_list(c);
}

int arrow_item(struct arrow_column *c, int64_t v) {
    int err = c->used == c->capacity ? space(c, 1) : 0;

    if (err)
        return err;
    if (c->type == ARROW_NAMES)
        ((int32_t *)(void *)c->values)[c->used++] = (int32_t)v;
    else
        ((int64_t *)(void *)c->values)[c->used++] = v;
    return 0;
}

int arrow_batch_init(struct arrow_batch *b, const struct arrow_field *fields, size_t n) {
    *b = (struct arrow_batch){
        .col = calloc(n ? n : 1, sizeof *b->col), .ncols = n, .pool = arrow_pool_new()};
    if (!b->pool) {
        arrow_batch_free(b);
        return -ENOMEM;
    }
    for (size_t i = 0; b->col && i < n; i++) {
        b->col[i].type = fields[i].type;
        b->col[i].pool = b->pool;
        if (types[fields[i].type].names && !(b->col[i].names = arrow_names_new())) {
            arrow_batch_free(b);
            break;
        }
    }
    return b->col ? 0 : -ENOMEM;
}

void arrow_batch_free(struct arrow_batch *b) {
    for (size_t i = 0; b->col && i < b->ncols; i++) {
        arrow_pool_give(b->col[i].values);
        arrow_pool_give(b->col[i].valid);
        arrow_pool_give(b->col[i].offsets);
        arrow_names_free(b->col[i].names);
    }
    free(b->col);
    arrow_pool_free(b->pool);
    memset(b, 0, sizeof *b);
}

size_t arrow_batch_bytes(const struct arrow_batch *b) {
    size_t n = 0;

    for (size_t i = 0; i < b->ncols; i++)
        n += types[b->col[i].type].offsets
                 ? b->col[i].used * types[b->col[i].type].width + b->col[i].n * 4
                 : b->col[i].n * types[b->col[i].type].width;
    return n;
}

/* ---- arrays out ---- */

/*
 * Arrays and schemas both own what is below them, n children and perhaps a dictionary, except for any that somebody has moved away (its
 * `release` is NULL then). The two structs differ, but these macros work for both.
 */
#define RELEASE_BELOW(o)                                                                           \
    do {                                                                                           \
        for (size_t k = 0; (o)->children && k < (o)->nchildren; k++) {                             \
            if ((o)->children[k] && (o)->children[k]->release)                                     \
                (o)->children[k]->release((o)->children[k]);                                       \
            free((o)->children[k]);                                                                \
        }                                                                                          \
        if ((o)->dictionary && (o)->dictionary->release)                                           \
            (o)->dictionary->release((o)->dictionary);                                             \
        free((o)->dictionary);                                                                     \
        free((o)->children);                                                                       \
    } while (0)
/* Allocates zeroed space for them. `ok` is set to whether there was enough memory. */
#define MAKE_BELOW(o, n, with_dictionary, ok)                                                      \
    do {                                                                                           \
        (o)->nchildren = (n);                                                                      \
        (o)->children = calloc((n) + 1, sizeof *(o)->children);                                    \
        (ok) = (o)->children != NULL;                                                              \
        for (size_t k = 0; (o)->children && k < (n); k++)                                          \
            if (!((o)->children[k] = calloc(1, sizeof **(o)->children)))                           \
                (ok) = 0;                                                                          \
        if ((with_dictionary) && !((o)->dictionary = calloc(1, sizeof *(o)->dictionary)))          \
            (ok) = 0;                                                                              \
    } while (0)

/* What an array owns: buffers of the pool, and the arrays below it. */
struct owned {
    void *give[3];
    const void *buffers[3];
    size_t nchildren;
    struct ArrowArray **children, *dictionary;
};

static void release_array(struct ArrowArray *a) {
    struct owned *o = a->private_data;

    RELEASE_BELOW(o);
    for (int i = 0; i < 3; i++)
        arrow_pool_give(o->give[i]);
    free(o);
    a->release = NULL;
}

/* Makes an array with space for its children and, with `names`, a dictionary. Returns NULL when there is no memory. */
static struct owned *new_array(struct ArrowArray *a, size_t nchildren,
                               const struct arrow_names *names) {
    struct owned *o = calloc(1, sizeof *o);

    memset(a, 0, sizeof *a);
    if (!o)
        return NULL;
    a->buffers = o->buffers;
    a->private_data = o;
    a->release = release_array;
    int ok;
    MAKE_BELOW(o, nchildren, names, ok);
    if (!ok || (names && arrow_names_export(names, o->dictionary) != 0)) {
        release_array(a);
        return NULL;
    }
    a->children = o->children;
    a->n_children = (int64_t)nchildren;
    a->dictionary = o->dictionary;
    return o;
}

/* Moves the column's buffers into the array. On -ENOMEM they stay where they are. */
static int export_column(struct arrow_column *c, struct ArrowArray *a) {
    static const int32_t no_offset[1];
    static const int64_t nothing[1];
    int list = types[c->type].list, offsets = types[c->type].offsets;
    struct ArrowArray *data = a;
    struct owned *o = new_array(a, list != 0, list ? NULL : c->names), *d = o;

    if (!o)
        return -ENOMEM;
    if (list) {
        data = a->children[0];
        if (!(d = new_array(data, 0, c->names))) {
            release_array(a);
            return -ENOMEM;
        }
        data->length = (int64_t)c->used;
        data->n_buffers = 2;
    }
    a->length = (int64_t)c->n;
    a->null_count = (int64_t)c->nulls;
    o->buffers[0] = o->give[0] = c->valid;
    a->n_buffers = offsets && !list ? 3 : 2;
    if (offsets)
        o->buffers[1] = (o->give[1] = c->offsets) && c->n ? (void *)c->offsets : no_offset;
    int at = offsets && !list ? 2 : 1;
    d->give[list ? 1 : at] = c->values;
    d->buffers[list ? 1 : at] = c->values ? (void *)c->values : nothing;
    c->values = c->valid = NULL;
    c->offsets = NULL;
    c->before = c->n;
    c->n = c->cap = c->nulls = c->used = c->capacity = 0;
    return 0;
}

int arrow_batch_export(struct arrow_batch *b, struct ArrowArray *out) {
    struct owned *o = new_array(out, b->ncols, NULL);

    if (!o)
        return -ENOMEM;
    out->length = (int64_t)b->n;
    out->n_buffers = 1;
    for (size_t i = 0; i < b->ncols; i++)
        if (export_column(&b->col[i], out->children[i]) != 0) {
            release_array(out);
            return -ENOMEM;
        }
    b->n = 0;
    return 0;
}

/* ---- schemas out ---- */

struct owned_schema {
    char *name, *metadata;
    size_t nchildren;
    struct ArrowSchema **children, *dictionary;
};

static void release_schema(struct ArrowSchema *s) {
    struct owned_schema *o = s->private_data;

    RELEASE_BELOW(o);
    free(o->name);
    free(o->metadata);
    free(o);
    s->release = NULL;
}

/* Format: int32 number of pairs, then each key and value with its int32 length in front. */
static char *metadata(const char *about) {
    static const char key[] = "description";
    int32_t head[2] = {1, sizeof key - 1}, n = (int32_t)strlen(about);
    char *m = malloc(sizeof head + sizeof key - 1 + sizeof n + (size_t)n);

    if (!m)
        return NULL;
    memcpy(m, head, sizeof head);
    memcpy(m + sizeof head, key, sizeof key - 1);
    memcpy(m + sizeof head + sizeof key - 1, &n, sizeof n);
    memcpy(m + sizeof head + sizeof key - 1 + sizeof n, about, (size_t)n);
    return m;
}

static int new_schema(struct ArrowSchema *s, const char *format, const char *name,
                      const char *about, size_t nchildren, int dictionary) {
    struct owned_schema *o = calloc(1, sizeof *o);

    memset(s, 0, sizeof *s);
    if (!o)
        return -ENOMEM;
    s->private_data = o;
    s->release = release_schema;
    o->name = strdup(name);
    o->metadata = about ? metadata(about) : NULL;
    int ok;
    MAKE_BELOW(o, nchildren, dictionary, ok);
    if (!ok || !o->name || (about && !o->metadata) ||
        (dictionary && new_schema(o->dictionary, "u", "", NULL, 0, 0) != 0)) {
        release_schema(s);
        return -ENOMEM;
    }
    *s = (struct ArrowSchema){.format = format,
                              .name = o->name,
                              .metadata = o->metadata,
                              .flags = ARROW_FLAG_NULLABLE,
                              .n_children = (int64_t)nchildren,
                              .children = o->children,
                              .dictionary = o->dictionary,
                              .release = release_schema,
                              .private_data = o};
    return 0;
}

static int field_schema(const struct arrow_field *f, struct ArrowSchema *s) {
    int list = types[f->type].list, names = types[f->type].names;
    int err =
        new_schema(s, list ? "+l" : types[f->type].format, f->name, f->about, list, names && !list);

    if (!err && list) {
        err = new_schema(s->children[0], types[f->type].format, "item", NULL, 0, names);
        if (err)
            release_schema(s);
    }
    return err;
}

int arrow_schema_export(const struct arrow_field *fields, size_t n, struct ArrowSchema *out) {
    int err = new_schema(out, "+s", "", NULL, n, 0);

    if (err)
        return err;
    out->flags = 0;
    for (size_t i = 0; i < n && !err; i++)
        err = field_schema(&fields[i], out->children[i]);
    if (err)
        release_schema(out);
    return err;
}
