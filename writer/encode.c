/* SPDX-License-Identifier: Apache-2.0 */
#include "encode.h"

#include "sys.h"

#define ROW_HEAD   2 /* bytes of a row's type and length, as nearly all lengths are below 128 */
#define PREV_TIME  (TRACE_MAX_FIELDS - 1) /* index in prev[] of the previous time of a record type */
#define FIRST_SIZE (72u << 10)            /* blocks are written at 64 KiB, so this seldom grows */

/* ---- one block ---- */

void builder_init(struct builder *b, enum trace_kind kind) {
    memset(b, 0, sizeof *b);
    b->kind = (uint8_t)kind;
    builder_reset(b);
}

void builder_free(struct builder *b) {
    free(b->buf);
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

/* The largest number of bytes that the row can take, including type and length. */
static size_t row_bound(const struct trace_record *rec, const struct writer_value *v) {
    size_t n = (2 + (size_t)rec->nfields) * VARINT_MAX;
    TRACE_EACH(i, rec->vars) {
        enum trace_type type = rec->fields[i].type;
        if (v[i].n > TRACE_BLOCK_MAX)
            return TRACE_BLOCK_MAX + 1; /* refused, so that no sum overflows */
        if (type != TRACE_STR)          /* STR has become an id already */
            n += type == TRACE_TXT || type == TRACE_BIN ? v[i].n : v[i].n * VARINT_MAX;
    }
    return n;
}

/* Writes a varint of the full 10 bytes, whatever its value. */
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
    uint64_t *prev = &b->prev[id][PREV_TIME], value = micro ? ts / 1000 : ts;
    ts = micro ? value * 1000 : ts;
    if (ts < b->first_ts)
        b->first_ts = ts;
    if (ts > b->last_ts)
        b->last_ts = ts;
    uint8_t *end = varint_put_diff(p, value, *prev);
    *prev = value;
    if (!b->first[id].off) {
        b->first[id].off = (uint32_t)(p - b->buf);
        b->first[id].micro = (uint8_t)micro;
        b->first[id].value = value;
        end = put_wide(p, 0);
    }
    return end;
}

/* Writes one field, as FORMAT.md specifies. */
static uint8_t *put_field(struct builder *b, uint8_t *p, const struct trace_record *rec, unsigned i,
                          const struct writer_value *v) {
    uint64_t *prev = &b->prev[rec->id][i];
    switch (rec->fields[i].type) {
    case TRACE_T:
    case TRACE_TUS:
        return put_time(b, p, rec->id, v->u, rec->fields[i].type == TRACE_TUS);
    case TRACE_U:
    case TRACE_STR: /* has become an id already */
        return varint_put(p, v->u);
    case TRACE_S:
        return varint_put(p, zigzag(v->i));
    case TRACE_D:
    case TRACE_ID:
    case TRACE_REF:
        p = varint_put_diff(p, v->u, *prev);
        *prev = v->u;
        return p;
    case TRACE_F:
    case TRACE_KEY:
        for (unsigned k = 0; k < 8; k++)
            *p++ = (uint8_t)(v->u >> (8 * k));
        return p;
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

/* Puts the length in front of the fields, which are at row + ROW_HEAD ... p. Returns the row's end. */
static uint8_t *close_row(uint8_t *row, uint8_t *p) {
    uint8_t *start = row + ROW_HEAD, len[VARINT_MAX];
    size_t n = (size_t)(p - start), nlen;
    row[1] = (uint8_t)n;
    if (__builtin_expect(n > 0x7f, 0)) {
        nlen = (size_t)(varint_put(len, n) - len);
        memmove(row + 1 + nlen, start, n);
        memcpy(row + 1, len, nlen);
        p += nlen - 1;
    }
    return p;
}

int builder_row(struct builder *b, const struct trace_record *rec, const struct writer_value *v) {
    int rc = reserve(b, row_bound(rec, v));
    if (rc)
        return rc;
    uint8_t *row = b->buf + b->len;
    row[0] = rec->id; /* ids are below 128: one byte */
    uint32_t had_first = b->first[rec->id].off;
    uint8_t *p = row + ROW_HEAD;
    for (unsigned i = 0, n = rec->nfields; i < n; i++)
        p = put_field(b, p, rec, i, &v[i]);
    uint8_t *end = close_row(row, p);
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
    *hint = trace_hint_of(&h);
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
}

/* Replaces all REF and REFS keys of a record by ids, or none. The scratch memory holds the ids of all fields one after the other. */
static int resolve(struct encoder *e, const struct dicts *d, const struct trace_record *rec,
                   struct writer_value *v) {
    size_t total = 0, used = 0;
    TRACE_EACH(i, rec->refs) total += trace_type_is_list(rec->fields[i].type) ? v[i].n : 1;
    if (total > TRACE_BLOCK_MAX)
        return -EFBIG;
    if (total > e->nids) {
        uint64_t *p = realloc(e->ids, total * sizeof *p);
        if (!p)
            return -ENOMEM;
        e->ids = p;
        e->nids = total;
    }
    TRACE_EACH(i, rec->refs) {
        int is_list = trace_type_is_list(rec->fields[i].type);
        const uint64_t *keys = is_list ? v[i].p : &v[i].u;
        for (size_t n = is_list ? v[i].n : 1; n--; keys++) {
            e->ids[used] = *keys ? dicts_find(d, rec->fields[i].ref, *keys) : 0;
            if (*keys && !e->ids[used])
                return -ENOENT;
            used++;
        }
    }
    used = 0;
    TRACE_EACH(i, rec->refs) {
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
            row[TRACE_string_id].u = id = d->map[TRACE_string].n + 1;
            row[TRACE_string_text] = *v;
            int rc = builder_row(&e->block[TRACE_KIND_DICT], trace_record_by_id(TRACE_string), row);
            if (!rc)
                rc = dicts_define(d, TRACE_string, key, id);
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
        key = v[1].u;
        if (!key || rec->id == TRACE_string) /* strings only come from intern_string() */
            return -EBADMSG;
        if (dicts_find(d, rec->id, key))
            return 0;
        v[0].u = d->map[rec->id].n + 1; /* first field: the id; second: the key */
    }
    rc = resolve(e, d, rec, v);
    TRACE_EACH(i, rec->vars) {
        if (!rc && rec->fields[i].type == TRACE_STR)
            rc = intern_string(e, d, &v[i]);
    }
    if (!rc)
        rc = builder_row(&e->block[rec->kind], rec, v);
    if (!rc && key)
        rc = dicts_define(d, rec->id, key, (uint32_t)v[0].u);
    return rc;
}
