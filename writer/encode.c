/* SPDX-License-Identifier: Apache-2.0 */
#include "encode.h"

#include "row.h"

#define FIRST_SIZE (72u << 10) /* a block is written at 64 KiB: seldom grows */

/* ---- one block ---- */

void builder_init(struct builder *b, enum trace_kind kind) {
    memset(b, 0, sizeof *b);
    b->kind = (uint8_t)kind;
    builder_reset(b);
}

void builder_free(struct builder *b) {
    free(b->buf);
    b->buf = NULL;
    b->cap = 0;
}

void builder_reset(struct builder *b) {
    for (unsigned id = 0; id <= TRACE_MAX_ID; id++) {
        if (b->types >> id & 1) {
            memset(b->prev[id], 0, sizeof b->prev[id]);
            memset(&b->first[id], 0, sizeof b->first[id]);
        }
    }
    b->types = 0;
    b->count = 0;
    b->len = TRACE_BLOCK_HEADER;
    b->first_ts = UINT64_MAX;
    b->last_ts = 0;
}

static int reserve(struct builder *b, size_t n) {
    if (n > TRACE_BLOCK_MAX || b->len + n > TRACE_BLOCK_MAX)
        return -EFBIG;
    if (b->len + n > b->cap) {
        size_t cap = b->cap ? b->cap : FIRST_SIZE;
        while (cap < b->len + n)
            cap += cap / 2;
        uint8_t *p = realloc(b->buf, cap);
        if (!p)
            return -ENOMEM;
        b->buf = p;
        b->cap = cap;
    }
    return 0;
}

/* The most bytes the row can take, type and length included. */
static size_t row_bound(const struct trace_record *rec, const struct writer_value *v) {
    size_t n = (2 + (size_t)rec->nfields) * VARINT_MAX;
    for (unsigned i = 0; i < rec->nfields; i++) {
        enum trace_type type = rec->fields[i].type;
        if (!trace_type_is_var(type))
            continue;
        if (v[i].n > TRACE_BLOCK_MAX)
            return TRACE_BLOCK_MAX + 1; /* refused, and no sum overflows */
        if (type != TRACE_STR)          /* an id by now */
            n += type == TRACE_TXT || type == TRACE_BIN ? v[i].n : v[i].n * VARINT_MAX;
    }
    return n;
}

/* A varint of the full 10 bytes, whatever its value. */
static uint8_t *put_wide(uint8_t *p, uint64_t v) {
    for (unsigned i = 0; i < VARINT_MAX - 1; i++, v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

static uint8_t *put_list(uint8_t *p, const uint64_t *list, size_t n) {
    uint64_t prev = 0;
    p = varint_put(p, n);
    for (size_t i = 0; i < n; i++) {
        p = varint_put_diff(p, list[i], prev);
        prev = list[i];
    }
    return p;
}

static uint8_t *put_time(struct builder *b, uint8_t *p, unsigned id, uint64_t ts, int micro) {
    uint64_t *prev = &b->prev[id][TIME_SLOT];
    struct span span = {b->first_ts, b->last_ts};
    uint8_t *end = micro ? put_TUS(p, ts, prev, &span) : put_T(p, ts, prev, &span);
    if (!b->first[id].off) {
        b->first[id].off = (uint32_t)(p - b->buf);
        b->first[id].micro = (uint8_t)micro;
        b->first[id].value = *prev;
        end = put_wide(p, 0);
    }
    b->first_ts = span.first;
    b->last_ts = span.last;
    return end;
}

/* One field. The records that come by the thousand go another way (encode_plain). */
static uint8_t *put_field(struct builder *b, uint8_t *p, const struct trace_record *rec, unsigned i,
                          const struct writer_value *v) {
    uint64_t *prev = &b->prev[rec->id][i];
    switch (rec->fields[i].type) {
    case TRACE_T:
    case TRACE_TUS:
        return put_time(b, p, rec->id, v->u, rec->fields[i].type == TRACE_TUS);
    case TRACE_U:
    case TRACE_STR: /* an id by now */
        return put_U(p, v->u, prev, NULL);
    case TRACE_S:
        return put_S(p, v->u, prev, NULL);
    case TRACE_D:
    case TRACE_ID:
    case TRACE_REF:
        return put_D(p, v->u, prev, NULL);
    case TRACE_F:
    case TRACE_KEY:
        return put_F(p, v->u, prev, NULL);
    case TRACE_REFS:
    case TRACE_US:
        return put_list(p, v->p, v->n);
    case TRACE_TXT:
    case TRACE_BIN:
        break;
    }
    p = varint_put(p, v->n);
    if (v->n)
        memcpy(p, v->p, v->n);
    return p + v->n;
}

int builder_row(struct builder *b, const struct trace_record *rec, const struct writer_value *v) {
    int rc = reserve(b, row_bound(rec, v));
    if (rc)
        return rc;
    uint8_t *row = b->buf + b->len;
    row[0] = rec->id; /* ids are below 128: one byte */
    uint32_t had_first = b->first[rec->id].off;
    uint8_t *p = row + ROW_HEAD;
    for (unsigned i = 0; i < rec->nfields; i++)
        p = put_field(b, p, rec, i, &v[i]);
    uint8_t *end = row_close(row, p);
    if (!had_first && b->first[rec->id].off)
        b->first[rec->id].off += (uint32_t)(end - p);
    b->len += (size_t)(end - row);
    b->count++;
    b->types |= 1ull << rec->id;
    return 0;
}

size_t builder_finish(struct builder *b, uint32_t seq, uint32_t epoch,
                      const uint64_t lost[TRACE_NLOST], struct trace_hint *hint) {
    uint64_t base = b->first_ts == UINT64_MAX ? 0 : b->first_ts;
    struct trace_block_header h = {.kind = b->kind,
                                   .encoding = TRACE_ENCODING_ROWS,
                                   .epoch = epoch,
                                   .seq = seq,
                                   .count = b->count,
                                   .body_len = (uint32_t)(b->len - TRACE_BLOCK_HEADER),
                                   .first_ts = base,
                                   .last_ts = b->last_ts,
                                   .types = b->types};
    memcpy(h.lost, lost, sizeof h.lost);
    for (unsigned id = 0; id <= TRACE_MAX_ID; id++) {
        uint64_t value = b->first[id].value;
        if (b->first[id].off)
            put_wide(b->buf + b->first[id].off,
                     zigzag((int64_t)(b->first[id].micro ? value - base / 1000 : value - base)));
    }
    trace_block_header_put(b->buf, &h);
    *hint = (struct trace_hint){.kind = b->kind,
                                .seq = seq,
                                .epoch = epoch,
                                .count = b->count,
                                .raw = (uint32_t)b->len,
                                .first_ts = base,
                                .last_ts = b->last_ts,
                                .types = b->types};
    return b->len;
}

/* ---- keys to ids ---- */

void encoder_init(struct encoder *e) {
    memset(e, 0, sizeof *e);
    for (unsigned k = 0; k < NKINDS; k++)
        builder_init(&e->block[k], (enum trace_kind)k);
}

void encoder_free(struct encoder *e) {
    for (unsigned k = 0; k < NKINDS; k++)
        builder_free(&e->block[k]);
    free(e->ids);
    e->ids = NULL;
    e->nids = 0;
}

/* All REF and REFS keys of a record become ids, or none does. The scratch holds the ids of all fields one after the other. */
static int resolve(struct encoder *e, const struct dicts *d, const struct trace_record *rec,
                   struct writer_value *v) {
    size_t total = 0, used = 0;
    for (unsigned i = 0; i < rec->nfields; i++)
        if (rec->fields[i].ref) /* REF or REFS */
            total += trace_type_is_list(rec->fields[i].type) ? v[i].n : 1;
    if (total > TRACE_BLOCK_MAX)
        return -EFBIG;
    if (total > e->nids) {
        uint64_t *p = realloc(e->ids, total * sizeof *p);
        if (!p)
            return -ENOMEM;
        e->ids = p;
        e->nids = total;
    }
    for (unsigned i = 0; i < rec->nfields; i++) {
        int is_list = trace_type_is_list(rec->fields[i].type);
        const uint64_t *keys = is_list ? v[i].p : &v[i].u;
        for (size_t k = 0; rec->fields[i].ref && k < (is_list ? v[i].n : 1); k++) {
            e->ids[used] = keys[k] ? dicts_find(d, rec->fields[i].ref, keys[k]) : 0;
            if (keys[k] && !e->ids[used])
                return -ENOENT;
            used++;
        }
    }
    used = 0;
    for (unsigned i = 0; i < rec->nfields; i++) {
        if (!rec->fields[i].ref)
            continue;
        if (!trace_type_is_list(rec->fields[i].type)) {
            v[i].u = e->ids[used++];
        } else {
            v[i].p = e->ids + used;
            used += v[i].n;
        }
    }
    return 0;
}

static int intern_string(struct encoder *e, struct dicts *d, struct writer_value *v) {
    uint32_t id = 0;
    if (v->n) {
        uint64_t key = string_key(v->p, v->n);
        id = dicts_find(d, TRACE_string, key);
        if (!id) {
            struct writer_value row[TRACE_string_NFIELDS] = {0};
            row[TRACE_string_id].u = d->map[TRACE_string].n + 1;
            row[TRACE_string_text] = *v;
            int rc = builder_row(&e->block[TRACE_KIND_DICT], trace_record_by_id(TRACE_string), row);
            if (!rc)
                rc = dicts_define(d, TRACE_string, key, &id);
            if (rc)
                return rc;
        }
    }
    v->u = id;
    return 0;
}

int encode_record(struct encoder *e, struct dicts *d, const struct trace_record *rec,
                  struct writer_value *v) {
    uint64_t key = 0;
    int rc = 0;

    if (rec->kind == TRACE_KIND_DICT) {
        for (unsigned i = 0; i < rec->nfields; i++)
            if (rec->fields[i].type == TRACE_KEY)
                key = v[i].u;
        if (!key) /* strings come by intern_string() alone */
            return -EBADMSG;
        if (dicts_find(d, rec->id, key))
            return 0;
        v[0].u = d->map[rec->id].n + 1; /* its id: always the first field */
    }
    rc = resolve(e, d, rec, v);
    for (unsigned i = 0; i < rec->nfields && !rc; i++)
        if (rec->fields[i].type == TRACE_STR)
            rc = intern_string(e, d, &v[i]);
    if (!rc)
        rc = builder_row(&e->block[rec->kind], rec, v);
    if (!rc && key) {
        uint32_t id;
        rc = dicts_define(d, rec->id, key, &id);
    }
    return rc;
}

/* ---- the short way ---- */

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

/* The macro below makes an encoder for every record type; those of types that are not plain are never called and the compiler
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

uint64_t encode_plain(struct encoder *e, struct ring_cursor *c, uint64_t limit, size_t large,
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
    struct builder *b = &e->block[plain[type].kind];
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
