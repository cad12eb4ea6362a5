/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/varint.h"

#define TIME TRACE_MAX_FIELDS /* index of a type's previous time, after its fields' values */

typedef uint64_t values[TRACE_MAX_ID + 1][TRACE_MAX_FIELDS + 1];

struct bytes {
    uint8_t *p; /* allocated by malloc() */
    size_t n, cap;
};

/* The state of joining the rows of several blocks into one block. */
struct merging {
    values in, out; /* previous values, for differences: of the block read; of the new one */
    struct bytes to[TRACE_MAX_ID + 1]; /* rows by type; all in to[0] where their order matters */
    struct bytes row;
    int by_type;
};

static int grow(struct bytes *b, size_t n) {
    if (n <= b->cap - b->n)
        return 0;
    size_t cap = b->n + n + b->cap;
    uint8_t *p = realloc(b->p, cap);
    if (!p)
        return -ENOMEM;
    b->p = p;
    b->cap = cap;
    return 0;
}

static int put(struct bytes *b, const uint8_t *p, size_t n) {
    int rc = grow(b, n);

    if (!rc && n)
        memcpy(b->p + b->n, p, n);
    b->n += rc ? 0 : n;
    return rc;
}

static int put_number(struct bytes *b, uint64_t v) {
    uint8_t text[VARINT_MAX];

    return put(b, text, (size_t)(varint_put(text, v) - text));
}

static void start(values v, uint64_t first_ts) {
    memset(v, 0, sizeof(values));
    for (unsigned i = 0; i <= TRACE_MAX_ID; i++)
        v[i][TIME] = first_ts;
}

/* Returns the end of a field whose bytes do not depend on earlier rows, so that they can be copied; NULL if it is longer than its row. */
static const uint8_t *skip(const uint8_t *p, const uint8_t *end, enum trace_type type) {
    uint64_t n = 0, x;

    if (type == TRACE_F || type == TRACE_KEY)
        return end - p < 8 ? NULL : p + 8;
    p = varint_get(p, end, &n);
    if (!p || type == TRACE_U || type == TRACE_S || type == TRACE_STR)
        return p;
    if (n > (uint64_t)(end - p))
        return NULL;
    if (type == TRACE_TXT || type == TRACE_BIN)
        return p + n;
    for (uint64_t i = 0; p && i < n; i++)
        p = varint_get(p, end, &x);
    return p;
}

/* Writes a field that is a difference to the previous value in the new block, for the same value. Returns 0, -ENOMEM, or -EBADMSG if no difference gives
 * that value. */
static int put_difference(struct merging *m, uint64_t d, enum trace_type type, uint64_t *in,
                          uint64_t *out) {
    uint64_t value = *in + (uint64_t)unzigzag(d), diff = value - *out;

    if (type == TRACE_TUS) {
        value = (*in / 1000 + (uint64_t)unzigzag(d)) * 1000;
        diff = value / 1000 - *out / 1000;
        if ((*out / 1000 + diff) * 1000 != value)
            return -EBADMSG;
    }
    *in = *out = value;
    return put_number(&m->row, zigzag((int64_t)diff));
}

/* Rewrites a row's fields, from p to end, into m->row. Returns -EBADMSG if they are not as the schema says. */
static int put_fields(struct merging *m, const struct trace_record *rec, const uint8_t *p,
                      const uint8_t *end) {
    int rc = 0;

    m->row.n = 0;
    for (unsigned i = 0; !rc && i < rec->nfields && p != end; i++) {
        enum trace_type type = rec->fields[i].type;
        unsigned prev = type == TRACE_T || type == TRACE_TUS ? TIME : i;
        const uint8_t *at = p;
        uint64_t d = 0;
        if (prev == TIME || type == TRACE_D || type == TRACE_ID || type == TRACE_REF) {
            p = varint_get(p, end, &d);
            rc = p ? put_difference(m, d, type, &m->in[rec->id][prev], &m->out[rec->id][prev])
                   : -EBADMSG;
        } else {
            p = skip(p, end, type);
            rc = p ? put(&m->row, at, (size_t)(p - at)) : -EBADMSG;
        }
    }
    return rc || p == end ? rc : -EBADMSG;
}

/* Rewrites all rows of a block. Returns -EBADMSG if some are not as the schema says. */
static int put_rows(struct merging *m, const struct pack_held_block *b) {
    const uint8_t *p = b->rows, *end = p + b->h.body_len;
    int rc = 0;

    start(m->in, b->h.first_ts);
    while (!rc && p < end) {
        uint64_t id = 0, len = 0;
        p = varint_get(p, end, &id);
        p = p ? varint_get(p, end, &len) : NULL;
        const struct trace_record *rec =
            p && id <= TRACE_MAX_ID ? trace_record_by_id((unsigned)id) : NULL;
        if (!rec || len > (uint64_t)(end - p))
            return -EBADMSG;
        rc = put_fields(m, rec, p, p + len);
        p += len;
        struct bytes *to = &m->to[m->by_type ? id : 0];
        rc = rc ? rc : put_number(to, id);
        rc = rc ? rc : put_number(to, m->row.n);
        rc = rc ? rc : put(to, m->row.p, m->row.n);
    }
    return rc;
}

static void merging_free(struct merging *m) {
    for (unsigned i = 0; m && i <= TRACE_MAX_ID; i++)
        free(m->to[i].p);
    if (m)
        free(m->row.p);
    free(m);
}

/* Joins the blocks' rows, as rows of one block, in m->to[0]. */
static int merge_rows(struct merging *m, const struct pack_held *held) {
    int rc = 0;

    m->by_type = held->h.kind == TRACE_KIND_DATA;
    start(m->out, held->h.first_ts);
    for (size_t i = 0; !rc && i < held->n; i++)
        rc = put_rows(m, &held->block[i]);
    for (unsigned i = 1; !rc && i <= TRACE_MAX_ID; i++)
        rc = put(&m->to[0], m->to[i].p, m->to[i].n);
    return rc;
}

/* Writes the held blocks of one kind: as one block or, if they cannot be joined, each as it is. */
static int flush_kind(struct pack_merge *p, unsigned kind) {
    struct pack_held *held = &p->held[kind];
    struct merging *m = held->n > 1 ? calloc(1, sizeof *m) : NULL;
    int rc = held->n > 1 && !m ? -ENOMEM : 0, merged = 0;

    if (m) {
        rc = merge_rows(m, held);
        merged = !rc && m->to[0].n <= TRACE_BLOCK_MAX - TRACE_BLOCK_HEADER;
        rc = rc == -EBADMSG ? 0 : rc;
    }
    if (merged) {
        held->h.body_len = (uint32_t)m->to[0].n;
        rc = block_out_copy(p->b, &held->h, m->to[0].p);
    }
    for (size_t i = 0; i < held->n; i++) {
        if (!rc && !merged)
            rc = block_out_copy(p->b, &held->block[i].h, held->block[i].rows);
        free(held->block[i].rows);
    }
    held->n = 0;
    memset(&held->h, 0, sizeof held->h);
    merging_free(m);
    return rc;
}

int pack_merge_flush(struct pack_merge *m) {
    int rc = flush_kind(m, TRACE_KIND_DICT);

    rc = rc ? rc : flush_kind(m, TRACE_KIND_META);
    return rc ? rc : flush_kind(m, TRACE_KIND_DATA);
}

static int hold(struct pack_held *held, const struct trace_block_header *h, const uint8_t *rows) {
    struct trace_block_header *sum = &held->h;

    if (held->n == held->cap) {
        size_t cap = held->cap * 2 + 64;
        struct pack_held_block *p = realloc(held->block, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        held->block = p;
        held->cap = cap;
    }
    struct pack_held_block *block = &held->block[held->n];
    block->h = *h;
    if (!(block->rows = malloc(h->body_len + 1u)))
        return -ENOMEM;
    memcpy(block->rows, rows, h->body_len);
    if (held->n++ == 0) {
        *sum = *h;
        return 0;
    }
    sum->count += h->count;
    sum->body_len += h->body_len;
    sum->types |= h->types;
    if (h->first_ts && (!sum->first_ts || h->first_ts < sum->first_ts))
        sum->first_ts = h->first_ts;
    if (h->last_ts > sum->last_ts)
        sum->last_ts = h->last_ts;
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        sum->lost[i] += h->lost[i];
    return 0;
}

int pack_merge_put(struct pack_merge *m, const struct trace_block_header *h, const uint8_t *rows) {
    int alone = (h->types & (1ull << TRACE_schema | 1ull << TRACE_end)) != 0;
    int rc = 0;

    if (h->kind > TRACE_KIND_DATA)
        return -EBADMSG;
    struct pack_held *held = &m->held[h->kind];
    int full = held->n && (held->h.epoch != h->epoch ||
                           held->h.body_len + (uint64_t)h->body_len > PACK_MERGED);
    if (alone)
        rc = pack_merge_flush(m);
    else if (full && h->kind != TRACE_KIND_DICT && (rc = flush_kind(m, TRACE_KIND_DICT)) == 0)
        rc = flush_kind(m, h->kind);
    else if (full && h->kind == TRACE_KIND_DICT)
        rc = flush_kind(m, h->kind);
    return rc ? rc : alone ? block_out_copy(m->b, h, rows) : hold(held, h, rows);
}

void pack_merge_free(struct pack_merge *m) {
    for (unsigned k = 0; k < 3; k++) {
        for (size_t i = 0; i < m->held[k].n; i++)
            free(m->held[k].block[i].rows);
        free(m->held[k].block);
    }
    memset(m, 0, sizeof *m);
}
