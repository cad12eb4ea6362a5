/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_names.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"

/* Reference-counted bytes that several arrays point into. Bytes that were written are never changed. */
struct shared {
    atomic_uint refs;
    size_t cap;
    uint8_t bytes[];
};

struct arrow_names {
    struct keys index;
    struct shared *offsets, *text;
    size_t n, used; /* number of names, and of their bytes */
};

struct exported {
    const void *buffers[3];
    struct shared *offsets, *text;
};

static void unref(struct shared *s) {
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        free(s);
}

static struct shared *ref(struct shared *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

/* Makes *s hold at least `want` bytes, keeping its first `used` ones. */
static int make_space(struct shared **s, size_t used, size_t want) {
    size_t cap = *s ? (*s)->cap : 0;

    if (want <= cap)
        return 0;
    cap = cap * 2 > want ? cap * 2 : want + 4096;
    struct shared *more = malloc(sizeof *more + cap);
    if (!more)
        return -ENOMEM;
    atomic_init(&more->refs, 1);
    more->cap = cap;
    if (*s)
        memcpy(more->bytes, (*s)->bytes, used);
    unref(*s);
    *s = more;
    return 0;
}

struct arrow_names *arrow_names_new(void) {
    struct arrow_names *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    keys_init(&d->index);
    if (make_space(&d->offsets, 0, 64) != 0 || make_space(&d->text, 0, 64) != 0) {
        arrow_names_free(d);
        return NULL;
    }
    memset(d->offsets->bytes, 0, sizeof(int32_t));
    return d;
}

void arrow_names_free(struct arrow_names *d) {
    if (!d)
        return;
    keys_free(&d->index);
    unref(d->offsets);
    unref(d->text);
    free(d);
}

int arrow_names_put(struct arrow_names *d, const char *p, size_t n, int32_t *out) {
    int is_new, err;
    uint32_t id;

    if (n > INT32_MAX - d->used || d->n >= INT32_MAX - 1)
        return (id = keys_find(&d->index, p, n)) ? (*out = (int32_t)id - 1, 0) : -EFBIG;
    if ((err = make_space(&d->text, d->used, d->used + n)) != 0 ||
        (err = make_space(&d->offsets, (d->n + 1) * 4, (d->n + 2) * 4)) != 0)
        return err;
    if (!(id = keys_put(&d->index, p, n, &is_new)))
        return -ENOMEM;
    if (is_new) {
        if (n)
            memcpy(d->text->bytes + d->used, p, n);
        d->used += n;
        d->n++;
        int32_t end = (int32_t)d->used;
        memcpy(d->offsets->bytes + d->n * 4, &end, sizeof end);
    }
    *out = (int32_t)id - 1;
    return 0;
}

static void release(struct ArrowArray *a) {
    struct exported *e = a->private_data;

    unref(e->offsets);
    unref(e->text);
    free(e);
    a->release = NULL;
}

int arrow_names_export(const struct arrow_names *d, struct ArrowArray *out) {
    struct exported *e = malloc(sizeof *e);

    if (!e)
        return -ENOMEM;
    e->offsets = ref(d->offsets);
    e->text = ref(d->text);
    e->buffers[0] = NULL;
    e->buffers[1] = d->offsets->bytes;
    e->buffers[2] = d->text->bytes;
    *out = (struct ArrowArray){.length = (int64_t)d->n,
                               .n_buffers = 3,
                               .buffers = e->buffers,
                               .release = release,
                               .private_data = e};
    return 0;
}
