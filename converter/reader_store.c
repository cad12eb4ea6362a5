/* SPDX-License-Identifier: Apache-2.0 */
/* reader_store.c - what opening a file found out, stored for when the file has grown. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reader_inside.h"

#define WORTHWHILE                                                                                 \
    64 /* blocks more than before: reading fewer hints takes less time than storing them */

/* Followed by the blocks, and by the contents of some of them, each with its length before it. */
struct stored_head {
    uint64_t bytes, blocks; /* bytes: of all of it */
};

/* Returns whether the index can be continued behind its last block: each block lies behind the one before it, and nothing else is there. */
static int is_unbroken(const struct reader *r) {
    uint64_t pos = 0;

    if (r->begin || r->skipped || r->repeated || r->moved || r->wrong_hints || r->left_out ||
        r->seek_table || r->newer || !reader_is_last(r))
        return 0;
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        if (b->pos != pos || b->off == b->pos || b->state > READER_GOOD)
            return 0;
        pos = b->off + b->compressed;
    }
    return 1;
}

void *reader_store(struct reader *r, size_t *n) {
    struct stored_head h = {sizeof h + r->nblocks * sizeof *r->blocks, r->nblocks};
    struct reader_data d = {0};
    uint64_t cap = h.bytes + h.bytes / 4;
    int err = 0;

    *n = 0;
    if (r->nblocks - r->nstored < WORTHWHILE + r->nstored / 4 || !is_unbroken(r))
        return NULL;
    uint8_t *p = malloc(cap);
    if (!p) {
        *n = 1;
        return NULL;
    }
    struct reader_block *to = (struct reader_block *)(void *)(p + sizeof h);
    memcpy(to, r->blocks, r->nblocks * sizeof *to);
    for (size_t i = 0; !err && i < r->nblocks; i++) {
        to[i].raw = 0;
        to[i].state = READER_UNREAD;
        if (!reader_has_anchors_alone(r, i) || (err = reader_load(r, i, &d)) != 0)
            continue;
        uint32_t len = (uint32_t)d.len;
        if (h.bytes + sizeof len + len > cap) {
            cap = 2 * (h.bytes + sizeof len + len);
            uint8_t *more = realloc(p, cap);
            err = more ? 0 : -ENOMEM;
            p = more ? more : p;
            to = (struct reader_block *)(void *)(p + sizeof h);
        }
        if (err || h.bytes > UINT32_MAX)
            continue;
        to[i].raw = (uint32_t)h.bytes;
        memcpy(p + h.bytes, &len, sizeof len);
        memcpy(p + h.bytes + sizeof len, d.data, len);
        h.bytes += sizeof len + len;
    }
    reader_data_free(&d);
    if (err) {
        *n = err == -ENOMEM;
        free(p);
        return NULL;
    }
    memcpy(p, &h, sizeof h);
    *n = h.bytes;
    return p;
}

void reader_stored_data(const struct reader *r, const struct reader_block *b,
                        struct reader_data *d) {
    uint32_t len;

    memcpy(&len, r->stored + b->raw, sizeof len);
    d->data = r->stored + b->raw + sizeof len;
    d->len = len;
    trace_block_header_get(d->data, d->len, &d->h);
}

/* Returns whether the hint of that block is where it was, and says the same. */
static int is_there(struct reader *r, const struct reader_block *b) {
    struct reader_block now;

    return reader_hint(r, b->pos, &now) == 0 && now.compressed == b->compressed &&
           now.seq == b->seq && now.epoch == b->epoch && now.count == b->count &&
           now.kind == b->kind && now.first_ts == b->first_ts && now.last_ts == b->last_ts &&
           now.types == b->types;
}

/* Gives r the blocks of an index that fits. Returns 1, 0: it does not, or -ENOMEM. */
static int take_stored(struct reader *r, const struct reader_stored *s) {
    struct stored_head h;

    if (s->n < sizeof h)
        return 0;
    memcpy(&h, s->p, sizeof h);
    if (h.bytes != s->n || !h.blocks || h.blocks > (s->n - sizeof h) / sizeof *r->blocks)
        return 0;
    size_t cap = h.blocks + h.blocks / 4 + WORTHWHILE;
    struct reader_block *b = malloc(cap * sizeof *b);
    if (!b)
        return -ENOMEM;
    memcpy(b, (const uint8_t *)s->p + sizeof h, h.blocks * sizeof *b);
    if (!is_there(r, &b[0]) || !is_there(r, &b[h.blocks - 1])) {
        free(b);
        return 0;
    }
    r->blocks = b;
    r->cap = cap;
    r->nblocks = r->nstored = h.blocks;
    r->stored = s->p;
    return 1;
}

int reader_open_stored(struct reader **out, const char *path, const struct reader_stored *stored,
                       size_t n) {
    struct reader *r = n ? calloc(1, sizeof *r) : NULL;
    int err, taken = 0;

    *out = NULL;
    if (!n)
        return reader_open(out, path);
    if (!r)
        return -ENOMEM;
    if ((err = source_open(&r->src, path)) != 0) {
        free(r);
        return err;
    }
    for (size_t i = 0; i < n && taken == 0; i++)
        taken = take_stored(r, &stored[i]);
    if (taken >= 0)
        return reader_open_source(out, r);
    reader_close(r);
    return -ENOMEM;
}
