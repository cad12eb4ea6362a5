/* SPDX-License-Identifier: Apache-2.0 */

#include "internal.h"

/* ---- writing a group of blocks ---- */

/* Stores in every ring the tail that it will have when the file is `len` bytes long (internal.h),
 * so that nothing is left over from a group that could not be written. */
static void announce(struct writer *w, uint64_t len) {
    for (unsigned i = 0; i < w->live->nrings; i++) {
        struct ring *r = live_ring(w->live, i);
        __atomic_store_n(&r->next_at, UINT64_MAX, __ATOMIC_RELEASE);
        __atomic_store_n(&r->next, w->at[i].pos, __ATOMIC_RELEASE);
        __atomic_store_n(&r->next_at, len, __ATOMIC_RELEASE);
    }
}

int writer_flush(struct writer *w) {
    static const uint64_t none[TRACE_NLOST];
    struct live *l = w->live;
    struct trace_hint hint;
    uint64_t lost[TRACE_NLOST], diff[TRACE_NLOST], records = 0, blocks = 0;
    size_t len = 0;
    int rc = 0;

    for (unsigned k = 0; k < NKINDS; k++)
        records += w->enc.block[k].count;
    if (w->status || records == 0) {
        rc = w->status;
        goto empty;
    }
    for (unsigned i = 0; i < TRACE_NLOST; i++) {
        lost[i] = __atomic_load_n(&l->lost[i], __ATOMIC_RELAXED);
        diff[i] = lost[i] - w->lost_written[i];
    }
    for (unsigned k = 0; k < NKINDS && !rc; k++) {
        struct builder *b = &w->enc.block[k];
        if (b->count) {
            size_t raw = builder_finish(b, w->seq + (uint32_t)blocks, w->block_epoch,
                                        blocks ? none : diff, &hint);
            rc = frame_put(w->zstd, b->buf, raw, &hint, &w->out, &len);
            blocks++;
        }
    }
    if (!rc) {
        announce(w, w->file.len + len);
        rc = tracefile_append(&w->file, w->out.bytes, len);
    }
    if (rc) {
        w->status = rc;
        if (!w->dead) /* else the rings still hold them for another attempt */
            live_lose(w->live, TRACE_LOST_write_error, records);
    } else {
        __atomic_store_n(&l->trace_bytes, w->file.len, __ATOMIC_RELEASE);
        __atomic_fetch_add(&l->records, records, __ATOMIC_RELAXED);
        w->seq += (uint32_t)blocks;
        memcpy(w->lost_written, lost, sizeof lost);
    }
    for (unsigned k = 0; k < NKINDS; k++) {
        if (!rc && w->enc.block[k].last_ts > w->last_ts)
            w->last_ts = w->enc.block[k].last_ts;
        builder_reset(&w->enc.block[k]);
    }
    w->oldest = 0;
empty:
    for (unsigned i = 0; (!w->status || !w->dead) && i < l->nrings; i++)
        ring_release(live_ring(l, i), w->at[i].pos);
    return rc;
}

/* ---- records into blocks ---- */

/* Encodes the record with the dictionaries `d`. All blocks under construction belong to one epoch, so a change of epoch flushes them first. */
static int encode_in(struct writer *w, struct dicts *d, const struct trace_record *rec,
                     struct writer_value *v) {
    if (w->block_epoch != d->epoch) {
        int rc = writer_flush(w);
        if (rc)
            return rc;
        w->block_epoch = d->epoch;
    }
    return encode_record(&w->enc, d, rec, v);
}

/* Whether d has all keys that the record names. */
static int all_known(const struct dicts *d, const struct trace_record *rec,
                     const struct writer_value *v) {
    TRACE_EACH(i, rec->refs) {
        if (rec->fields[i].type == TRACE_REF && v[i].u &&
            !dicts_find(d, rec->fields[i].ref, v[i].u))
            return 0;
    }
    return 1;
}

/* Begins a new epoch when the dictionaries are full: ids start again. Producers see live->epoch and
 * define everything anew; records that they sent before still resolve in `old`. */
static int next_epoch(struct writer *w) {
    int rc = writer_flush(w);
    if (rc)
        return rc;
    dicts_free(&w->old);
    w->old = w->now;
    w->now = (struct dicts){.epoch = w->old.epoch + 1};
    w->block_epoch = w->now.epoch;
    __atomic_store_n(&w->live->epoch, w->now.epoch, __ATOMIC_RELEASE);
    return 0;
}

int writer_encode(struct writer *w, const struct trace_record *rec, struct writer_value *v) {
    int rc = encode_in(w, &w->now, rec, v);
    if (rc == -ENOENT && rec->kind != TRACE_KIND_DICT && w->old.entries &&
        all_known(&w->old, rec, v))
        rc = encode_in(w, &w->old, rec, v);
    if (!rc && !w->oldest)
        w->oldest = sys_now();
    return rc;
}

/* Flushes when a block has grown large; begins a new epoch when the dictionaries have. Only call it between records, when at[].pos is up to date. */
static int check_size(struct writer *w) {
    if (w->now.entries >= w->bound)
        return next_epoch(w);
    for (unsigned k = 0; k < NKINDS; k++)
        if (w->enc.block[k].len >= BLOCK_LARGE)
            return writer_flush(w);
    return 0;
}

/* ---- rings ---- */

/* Checks a raw record's fields and converts them to values. Fields of a newer agent are ignored; fields that an older one lacks become 0. */
static int raw_values(const uint64_t *raw, const struct trace_record *rec, struct writer_value *v) {
    unsigned n = ring_rec_nfields(raw), known = n < rec->nfields ? n : rec->nfields;
    uint64_t len = ring_rec_len(raw);

    for (unsigned i = 0; i < known; i++)
        v[i].u = raw[1 + i];
    for (unsigned i = known; i < rec->nfields; i++)
        v[i].u = 0;
    TRACE_EACH(i, rec->vars) {
        uint64_t off = v[i].u >> 32, bytes = v[i].u & 0xffffffff;
        v[i].p = NULL;
        v[i].n = 0;
        if (v[i].u == 0)
            continue; /* never filled in: empty */
        if (off < 8 + 8 * (uint64_t)n || off > len || bytes > len - off)
            return -EBADMSG;
        v[i].p = (const uint8_t *)raw + off;
        v[i].n = bytes;
        if (trace_type_is_list(rec->fields[i].type)) {
            if ((off & 7) || (bytes & 7))
                return -EBADMSG;
            v[i].n = bytes / 8;
        }
    }
    return 0;
}

static void count_dropped(struct writer *w, struct ring *r) {
    uint64_t dropped = __atomic_load_n(&r->dropped, __ATOMIC_RELAXED);
    uint64_t counted = __atomic_load_n(&r->counted, __ATOMIC_RELAXED);
    if (dropped != counted) {
        live_lose(w->live, TRACE_LOST_ring_full, dropped - counted);
        __atomic_store_n(&r->counted, dropped, __ATOMIC_RELAXED);
    }
}

/* Takes one record. Returns 0 when it was taken (or lost and counted), -ENOENT when it must wait, else the sticky status. */
static int take(struct writer *w, const uint64_t *raw) {
    struct writer_value v[TRACE_MAX_FIELDS];
    unsigned type = ring_rec_type(raw);
    const struct trace_record *rec = trace_record_by_id(type);

    if (w->status && !w->dead) {
        live_lose(w->live, TRACE_LOST_write_error, 1);
        return 0;
    }
    if (!rec || raw_values(raw, rec, v) < 0) {
        live_lose(w->live, TRACE_LOST_damaged, 1);
        return 0;
    }
    int rc = writer_encode(w, rec, v);
    if (rc == 0)
        w->recovered++;
    if (rc == -EBADMSG || rc == -EFBIG) {
        live_lose(w->live, TRACE_LOST_damaged, 1);
        rc = 0;
    } else if (rc && rc != -ENOENT) {
        if (!w->status) /* out of memory */
            w->status = rc;
        if (!w->dead) {
            live_lose(w->live, TRACE_LOST_write_error, 1);
            rc = 0;
        }
    }
    return rc;
}

/* Reads ring i until it is empty or must wait. Records before `settled` are given up when they have waited long enough. Returns the number of records taken. */
static uint64_t read_ring(struct writer *w, unsigned i, uint64_t settled, int last, int *waits) {
    struct ring *r = live_ring(w->live, i);
    /* Nobody writes into an orphan any more, even if its last record is unfinished. */
    int dead = w->dead || __atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == RING_ORPHAN;
    struct ring_cursor c = {.ring = r, .pos = w->at[i].pos, .dead = dead};
    uint64_t limit = w->at[i].pos + 2 * r->size; /* a fast producer must not hold us here */
    uint64_t taken = 0;
    const uint64_t *raw;

    for (;;) {
        if (c.pos >= limit || (w->status && w->dead) || !(raw = ring_next(&c)))
            break;
        int rc = take(w, raw);
        /* A ring that fills up behind a waiting record would lose more than that record. */
        if (rc == -ENOENT && c.pos <= settled &&
            (last || w->at[i].waited >= DEFER_DRAINS || ring_used(r) > r->size / 2)) {
            live_lose(w->live, TRACE_LOST_unresolved, 1);
            rc = 0;
        }
        if (rc) {
            ring_unread(&c, raw);
            *waits = rc == -ENOENT;
            break;
        }
        taken++;
        w->at[i].pos = c.pos;
        check_size(w);
    }
    if (c.bad) {
        /* Nothing behind this position can be trusted: skip to the head and count one lost record. */
        live_lose(w->live, TRACE_LOST_damaged, 1);
        w->at[i].pos = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE) & ~7ull;
    } else {
        w->at[i].pos = c.pos; /* also skips pads and, in a dead ring, unfinished records */
    }
    return taken;
}

/* A key's definition was committed before the record that names it, but it may be in a ring that this round has passed already. So rounds
 * are repeated until nothing more is taken. A record that was there at the beginning and still names an unknown key then has a real
 * problem: its definition is behind another waiting record, or was dropped. Only such a record is given up, in the last round. The number
 * of rounds is bounded, in case producers are faster than we are. */
int writer_read_rings(struct writer *w, int last) {
    unsigned n = w->live->nrings;
    uint64_t taken = 1;

    for (unsigned i = 0; i < n; i++)
        w->at[i].settled =
            last ? UINT64_MAX : __atomic_load_n(&live_ring(w->live, i)->head, __ATOMIC_ACQUIRE);
    for (unsigned round = 0; round < 17; round++) {
        int final = round == 16 || !taken;
        taken = 0;
        for (unsigned i = 0; i < n; i++) {
            struct ring *r = live_ring(w->live, i);
            int waits = 0;
            if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) != RING_FREE || w->dead)
                taken += read_ring(w, i, final ? w->at[i].settled : 0, last, &waits);
            if (w->status && w->dead)
                return w->status;
            if (final) {
                w->at[i].waited = waits ? (uint8_t)(w->at[i].waited + 1) : 0;
                count_dropped(w, r);
            }
        }
        if (final)
            break;
    }
    return w->status;
}
