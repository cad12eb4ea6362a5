/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include "sys.h"

/*
 * Memory order. The producer may only reserve what the reader has cleared: tail is released after the clearing and acquired before the reserving. A record's
 * bytes are released by the header's last store (commit) and acquired by the reader's load of the header. Head is moved by compare-and-swap because a signal
 * handler on the same thread may have moved it in between.
 */

static uint64_t *word_at(struct ring *r, uint64_t pos) {
    return (uint64_t *)(r->data + (pos & (r->size - 1)));
}

void ring_init(struct ring *r, uint64_t size) {
    memset(r, 0, sizeof *r);
    r->size = size;
}

uint64_t *ring_reserve(struct ring *r, unsigned type, unsigned nfields, size_t extra) {
    uint64_t size = r->size;
    uint64_t need = 8 + 8 * (uint64_t)nfields + sys_round8(extra);
    uint64_t head = __atomic_load_n(&r->head, __ATOMIC_RELAXED), pad, total;

    if (extra > size || need > size / 2) /* might never fit, whatever the reader does */
        goto full;
    do {
        uint64_t left = size - (head & (size - 1));
        pad = need > left ? left : 0;
        total = pad + need;
        if (head + total - __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) > size)
            goto full;
    } while (!__atomic_compare_exchange_n(&r->head, &head, head + total, 0, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
    if (pad)
        __atomic_store_n(word_at(r, head), RING_HEADER(0, RING_PAD, pad), __ATOMIC_RELEASE);
    uint64_t *rec = word_at(r, head + pad);
    __atomic_store_n(rec, RING_HEADER(nfields, type, RING_BUSY | need), __ATOMIC_RELEASE);
    /* No field may be written before the header: whoever reads a dead process's ring relies on that. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return rec + 1;
full:
    __atomic_fetch_add(&r->dropped, 1, __ATOMIC_RELAXED);
    return NULL;
}

void ring_open(uint64_t *f) {
    __atomic_store_n(f - 1, f[-1] | RING_OPEN, __ATOMIC_RELEASE);
}

void ring_commit(uint64_t *f) {
    __atomic_store_n(f - 1, f[-1] & ~(uint64_t)(RING_BUSY | RING_OPEN), __ATOMIC_RELEASE);
}

void ring_trim(struct ring *r, uint64_t *f, size_t extra) {
    uint64_t h = f[-1], len = ring_rec_len(f - 1);
    uint64_t need = 8 + 8 * (uint64_t)ring_rec_nfields(f - 1) + sys_round8(extra);
    uint64_t head = __atomic_load_n(&r->head, __ATOMIC_RELAXED);
    if (need >= len || word_at(r, head - len) != f - 1)
        return; /* another record was reserved behind it */
    /* The length is stored first: a process killed in between leaves zeros before head, which are skipped. */
    __atomic_store_n(f - 1, (h & ~(uint64_t)RING_LEN) | need, __ATOMIC_RELEASE);
    if (!__atomic_compare_exchange_n(&r->head, &head, head - len + need, 0, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        __atomic_store_n(f - 1, h, __ATOMIC_RELEASE);
}

void ring_put_bytes(uint64_t *f, unsigned nfields, unsigned i, const void *bytes, size_t n,
                    size_t *used) {
    size_t off = 8 + 8 * (size_t)nfields + *used;
    size_t len = ring_rec_len(f - 1);
    size_t left = off < len ? len - off : 0;
    if (n > left) /* the caller reserved too little: cut the bytes, never overrun */
        n = left;
    if (n)
        memcpy((uint8_t *)(f - 1) + off, bytes, n);
    f[i] = (uint64_t)off << 32 | n;
    *used += sys_round8(n);
}

const uint64_t *ring_next(struct ring_cursor *c) {
    struct ring *r = c->ring;
    uint64_t size = r->size, head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);

    if (head - c->pos > size || (head & 7) || (c->pos & 7)) {
        c->bad = 1;
        return NULL;
    }
    while (c->pos != head) {
        const uint64_t *rec = word_at(r, c->pos);
        uint64_t h = __atomic_load_n(rec, __ATOMIC_ACQUIRE);
        if (h == 0) {
            if (!c->dead)
                return NULL;
            /* The producer died between moving head and writing the header: all of the space is still zero. A record
             * that a signal handler reserved and committed in that instant is behind it. */
            c->pos += 8;
            continue;
        }
        uint64_t len = ring_rec_len(&h), off = c->pos & (size - 1);
        if (len < 8 + 8 * (uint64_t)ring_rec_nfields(&h) || (len & 7) || len > size - off ||
            len > head - c->pos) {
            c->bad = 1;
            return NULL;
        }
        if ((h & RING_BUSY) && !c->dead)
            return NULL;
        c->pos += len;
        if (h & RING_BUSY ? h & RING_OPEN : ring_rec_type(&h) != RING_PAD)
            return rec;
    }
    return NULL;
}

void ring_unread(struct ring_cursor *c, const uint64_t *rec) {
    c->pos -= ring_rec_len(rec);
}

void ring_release(struct ring *r, uint64_t pos) {
    uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_RELAXED), n = pos - tail;
    uint64_t off = tail & (r->size - 1), left = r->size - off, first = n < left ? n : left;

    if (n == 0 || n > r->size)
        return;
    memset(r->data + off, 0, first);
    memset(r->data, 0, n - first);
    __atomic_store_n(&r->tail, pos, __ATOMIC_RELEASE);
}

uint64_t ring_used(const struct ring *r) {
    uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&r->head, __ATOMIC_ACQUIRE) - tail;
}
