/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - decodes the rows of a block: declared in block.h, driven by records.def's table.
 */
#include <errno.h>
#include <string.h>

#include "block.h"

/* All T and TUS fields of a record type share one previous time. Its slot is the last one of prev,
 * which no field uses (records have fewer than TRACE_MAX_FIELDS fields). */
#define PREV_TIME (TRACE_MAX_FIELDS - 1)

#define RECORD(name, id, kind, doc)                                                                \
    _Static_assert(id >= 1 && id <= TRACE_MAX_ID && TRACE_##name##_NFIELDS <= PREV_TIME,           \
                   "record " #name " has an id out of range or too many fields");
#include "records.def"

void trace_rows_start(struct trace_rows *r, const struct trace_block_header *h,
                      const uint8_t *block) {
    r->p = block + h->header_len;
    r->end = r->p + h->body_len;
    r->first_ts = h->first_ts;
    r->begun = 0;
}

/* The previous values of a record type, cleared at its first row only, since most blocks have rows of few types. */
static uint64_t *prev_of(struct trace_rows *r, unsigned id) {
    uint64_t *prev = r->prev[id];

    if (!(r->begun >> id & 1)) {
        r->begun |= 1ull << id;
        memset(prev, 0, sizeof r->prev[id]);
        prev[PREV_TIME] = r->first_ts;
    }
    return prev;
}

/* A counted list of varints: checks that they are all there and leaves them encoded. */
static const uint8_t *get_list(const uint8_t *p, const uint8_t *end, struct trace_value *v) {
    uint64_t n, d;
    p = varint_get(p, end, &n);
    if (!p || n > (uint64_t)(end - p))
        return NULL;
    v->p = p;
    v->n = (uint32_t)n;
    for (uint64_t i = 0; i < n && p; i++)
        p = varint_get(p, end, &d);
    return p;
}

static const uint8_t *get_field(const uint8_t *p, const uint8_t *end, enum trace_type type,
                                uint64_t *prev, uint64_t *prev_ts, struct trace_value *v) {
    uint64_t x = 0;
    switch (type) {
    case TRACE_U:
    case TRACE_STR:
        return varint_get(p, end, &v->u);
    case TRACE_S:
        p = varint_get(p, end, &x);
        v->i = unzigzag(x);
        return p;
    case TRACE_D:
    case TRACE_ID:
    case TRACE_REF:
        p = varint_get(p, end, &x);
        v->u = *prev += (uint64_t)unzigzag(x);
        return p;
    case TRACE_T:
        p = varint_get(p, end, &x);
        v->u = *prev_ts += (uint64_t)unzigzag(x);
        return p;
    case TRACE_TUS:
        p = varint_get(p, end, &x);
        v->u = *prev_ts = (*prev_ts / 1000 + (uint64_t)unzigzag(x)) * 1000;
        return p;
    case TRACE_F:
    case TRACE_KEY:
        if (end - p < 8)
            return NULL;
        for (unsigned i = 0; i < 8; i++)
            x |= (uint64_t)p[i] << (8 * i);
        v->u = x;
        return p + 8;
    case TRACE_TXT:
    case TRACE_BIN:
        p = varint_get(p, end, &x);
        if (!p || x > (uint64_t)(end - p))
            return NULL;
        v->p = p;
        v->n = (uint32_t)x;
        return p + x;
    case TRACE_REFS:
    case TRACE_US:
        return get_list(p, end, v);
    }
    return NULL;
}

int trace_rows_next(struct trace_rows *r, uint64_t want, struct trace_value v[TRACE_MAX_FIELDS]) {
    while (r->p < r->end) {
        uint64_t id, len = 0;
        const uint8_t *p = r->p;
        if (r->end - p >= 2 && !((p[0] | p[1]) & 0x80)) { /* nearly always one byte each */
            id = p[0];
            len = p[1];
            p += 2;
        } else {
            p = varint_get(p, r->end, &id);
            if (p)
                p = varint_get(p, r->end, &len);
        }
        if (!p || len > (uint64_t)(r->end - p)) {
            r->p = r->end; /* nothing after this can be trusted */
            return -EBADMSG;
        }
        const uint8_t *end = p + len;
        r->p = end;
        if (id > TRACE_MAX_ID || !(want >> id & 1))
            continue;
        const struct trace_record *rec = trace_record_by_id((unsigned)id);
        if (!rec)
            continue;
        memset(v, 0, rec->nfields * sizeof *v);
        uint64_t *prev = prev_of(r, (unsigned)id);
        for (unsigned i = 0; i < rec->nfields && p != end; i++) {
            p = get_field(p, end, rec->fields[i].type, &prev[i], &prev[PREV_TIME], &v[i]);
            if (!p) {
                r->p = r->end;
                return -EBADMSG;
            }
        }
        return (int)id;
    }
    return 0;
}

/* Reads one field of a sample. `limit` is the end of the block, up to which bytes may be read at once. Returns NULL when the row ends inside the field. */
static inline const uint8_t *get_wide(const uint8_t *p, const uint8_t *end, const uint8_t *limit,
                                      uint64_t *v) {
    *v = 0;
    if (p == end) /* an older writer lacked this field */
        return p;
    if (limit - p < VARINT_MAX)
        return varint_get(p, end, v);
    p = varint_get_wide(p, v);
    return p && p <= end ? p : NULL;
}

size_t trace_samples_next(struct trace_rows *r, const struct trace_samples *to, size_t max,
                          int *damaged) {
    uint64_t *prev = prev_of(r, TRACE_sample), ts = prev[PREV_TIME], tid = prev[TRACE_sample_tid],
             stack = prev[TRACE_sample_stack], pc = prev[TRACE_sample_pc];
    const uint8_t *const limit = r->end, *row = r->p;
    size_t n = 0;

    _Static_assert(TRACE_sample_NFIELDS == 7, "a field of sample that is not decoded here");
    while (n < max && row < limit) {
        uint64_t id, len, x[TRACE_sample_NFIELDS];
        const uint8_t *p = varint_get(row, limit, &id);
        p = p ? varint_get(p, limit, &len) : NULL;
        if (!p || len > (uint64_t)(limit - p))
            goto bad;
        const uint8_t *end = row = p + len;
        if (id != TRACE_sample)
            continue;
        int had[4]; /* which difference-coded fields are there; absent ones leave prev unchanged */
        for (unsigned i = 0; i < 4; i++) {
            had[i] = p != end;
            if (!(p = get_wide(p, end, limit, &x[i])))
                goto bad;
        }
        for (unsigned i = 4; i < TRACE_sample_NFIELDS; i++)
            if (!(p = get_wide(p, end, limit, &x[i])))
                goto bad;
        if (had[0])
            ts = (ts / 1000 + (uint64_t)unzigzag(x[0])) * 1000;
        tid += (uint64_t)unzigzag(x[1]);
        stack += (uint64_t)unzigzag(x[2]);
        pc += (uint64_t)unzigzag(x[3]);
        to->ts[n] = had[0] ? ts : 0;
        to->tid[n] = had[1] ? tid : 0;
        to->stack[n] = had[2] ? stack : 0;
        to->pc[n] = had[3] ? pc : 0;
        to->cpu_us[n] = x[4];
        to->count[n] = x[5];
        to->flags[n] = x[6];
        n++;
    }
out:
    r->p = row;
    prev[PREV_TIME] = ts;
    prev[TRACE_sample_tid] = tid;
    prev[TRACE_sample_stack] = stack;
    prev[TRACE_sample_pc] = pc;
    return n;
bad: /* nothing after this can be trusted */
    *damaged = 1;
    row = limit;
    goto out;
}
