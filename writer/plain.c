/* SPDX-License-Identifier: Apache-2.0 */
#include "plain.h"

#include "row.h"

/* One contiguous piece of a ring, and where its rows go. */
struct run {
    const uint64_t *rec, *end; /* end: a whole number of the type's records further on */
    uint8_t *row, *stop;       /* a row may begin before stop */
    uint32_t count;            /* rows written */
    struct span span;
    const struct dicts *d;
};

/* clang-format off */
/* Which types have a short way: no bytes, no lists, not a definition. */
#define IS_VAR(type) \
    (TRACE_##type == TRACE_STR || TRACE_##type == TRACE_TXT || TRACE_##type == TRACE_BIN || \
     TRACE_##type == TRACE_REFS || TRACE_##type == TRACE_US)
#define RECORD(name, id, kind, doc)        enum { PLAIN_##name = (int)TRACE_KIND_##kind != TRACE_KIND_DICT
#define FIELD(name, field, type, ref, doc) && !IS_VAR(type)
#define END(name)                          };
#include "../traces/records.def"

/* The macro below makes an encoder for every record type; those of types that are not IS_PLAIN are never called and the compiler
 * drops them, but they must compile: so the variable-length field types need a definition. */
#define put_STR  put_U
#define put_TXT  put_U
#define put_BIN  put_U
#define put_REFS put_U
#define put_US   put_U

#define INLINE static inline __attribute__((always_inline))
#define SLOT(name, field, type) (TRACE_##type == TRACE_T || TRACE_##type == TRACE_TUS ? TIME_SLOT : (int)TRACE_##name##_##field)

#define RECORD(name, id, kind, doc)        INLINE void copy_##name(uint64_t *to, const uint64_t *from) {
#define FIELD(name, field, type, ref, doc) to[SLOT(name, field, type)] = from[SLOT(name, field, type)];
#define END(name)                          }
#include "../traces/records.def"

/* A record's words as values: ids for keys. 0: a key is not known. */
#define RECORD(name, id, kind, doc) \
    INLINE int values_##name(const struct dicts *d, uint64_t *v, const uint64_t *f) { \
        (void)d;
#define FIELD(name, field, type, ref, doc) \
        v[TRACE_##name##_##field] = f[TRACE_##name##_##field]; \
        if (TRACE_##type == TRACE_REF && v[TRACE_##name##_##field] && \
            !(v[TRACE_##name##_##field] = dicts_find(d, TRACE_##ref, v[TRACE_##name##_##field]))) \
            return 0;
#define END(name) \
        return 1; \
    }
#include "../traces/records.def"

#define RECORD(name, id, kind, doc) \
    INLINE uint8_t *row_##name(uint8_t *row, const uint64_t *v, uint64_t *prev, struct span *span) { \
        uint8_t *p = row + ROW_HEAD; \
        row[0] = TRACE_##name;
#define FIELD(name, field, type, ref, doc) \
        p = put_##type(p, v[TRACE_##name##_##field], &prev[SLOT(name, field, type)], span);
#define END(name) \
        return row_close(row, p); \
    }
#include "../traces/records.def"

/*
 * Up to the first record that is not exactly as we write it (one comparison: committed, type, number of fields,
 * length) or that names an unknown key. The previous values are locals: a row's bytes might be anything to the
 * compiler, and it would load a builder's again after each.
 */
#define RECORD(name, id, kind, doc) \
    static void run_##name(struct run *run, uint64_t *state) { \
        enum { N = TRACE_##name##_NFIELDS }; \
        struct run r = *run; \
        uint64_t prev[TRACE_MAX_FIELDS], v[TRACE_MAX_FIELDS]; \
        copy_##name(prev, state); \
        while (r.rec < r.end && r.row < r.stop && \
               __atomic_load_n(r.rec, __ATOMIC_ACQUIRE) == RING_HEADER(N, TRACE_##name, 8 + 8 * N) && \
               values_##name(r.d, v, r.rec + 1)) { \
            r.row = row_##name(r.row, v, prev, &r.span); \
            r.rec += 1 + N; \
            r.count++; \
        } \
        copy_##name(state, prev); \
        *run = r; \
    }
#include "../traces/records.def"

static const struct {
    void (*run)(struct run *, uint64_t *state);
    uint8_t kind, words;
} plain[TRACE_MAX_ID + 1] = {
#define RECORD(name, id, kind, doc) [id] = {PLAIN_##name ? run_##name : NULL, TRACE_KIND_##kind, 1 + TRACE_##name##_NFIELDS},
#include "../traces/records.def"
};
/* clang-format on */

uint64_t plain_take(struct ring_cursor *c, uint64_t limit, struct builder *blocks, size_t large,
                    const struct dicts *d) {
    uint64_t size = c->ring->size, off = c->pos & (size - 1);
    uint64_t head = __atomic_load_n(&c->ring->head, __ATOMIC_ACQUIRE), n = head - c->pos;

    if (n == 0 || n > size || (head & 7) || (c->pos & 7) || c->pos >= limit)
        return 0;
    const uint64_t *rec = (const uint64_t *)(c->ring->data + off);
    uint64_t h = __atomic_load_n(rec, __ATOMIC_ACQUIRE);
    unsigned type = ring_rec_type(&h);
    if (type > TRACE_MAX_ID || !plain[type].run)
        return 0;
    struct builder *b = &blocks[plain[type].kind];
    /* In the block already: then the type has its first time, whose place builder_finish() must know. */
    if (!(b->types >> type & 1) || large + ROW_MAX > b->cap)
        return 0;
    if (n > size - off)
        n = size - off;
    if (n > limit - c->pos)
        n = limit - c->pos;
    struct run r = {.rec = rec,
                    .end = rec + n / (8 * plain[type].words) * plain[type].words,
                    .row = b->buf + b->len,
                    .stop = b->buf + large,
                    .span = {b->first_ts, b->last_ts},
                    .d = d};
    plain[type].run(&r, b->prev[type]);
    b->len = (size_t)(r.row - b->buf);
    b->count += r.count;
    b->first_ts = r.span.first;
    b->last_ts = r.span.last;
    c->pos += (uint64_t)(r.rec - rec) * 8;
    return r.count;
}
