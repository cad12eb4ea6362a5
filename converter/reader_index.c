/* SPDX-License-Identifier: Apache-2.0 */
/* reader_index.c - walks the file and makes the index of its blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "reader_inside.h"

#define ZSTD_MAGIC    0xFD2FB528u
#define TRIALS_MAX    1024
#define MOVED_MAX     1024 /* most blocks that may come after one with a higher number */
#define SPARSE        4096
#define RESYNC_WINDOW (256u << 10)

/* Returns 1 when the frames of two blocks have the same bytes. */
static int same_bytes(struct reader *r, const struct reader_block *a,
                      const struct reader_block *b) {
    uint8_t part[4096];

    if (a->compressed != b->compressed)
        return 0;
    for (uint32_t at = 0; at < a->compressed; at += sizeof part) {
        size_t n = a->compressed - at < sizeof part ? a->compressed - at : sizeof part, got;
        const uint8_t *p = source_view(&r->src, a->off + at, n, &got);
        if (!p || got < n)
            return 0;
        memcpy(part, p, n);
        p = source_view(&r->src, b->off + at, n, &got);
        if (!p || got < n || memcmp(part, p, n) != 0)
            return 0;
    }
    return 1;
}

/* Returns the index at which the block with that sequence number is, or belongs. */
static size_t index_of(const struct reader *r, uint32_t seq) {
    size_t lo = 0, hi = r->nblocks;

    if (hi && r->blocks[hi - 1].seq < seq)
        return hi;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r->blocks[mid].seq < seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/*
 * Adds one more block. Returns 0; 1: it begins another trace; -errno. Sequence numbers ascend within a trace. A block that exists already,
 * byte by byte the same, is a repetition, and one that could not be read is replaced by a readable copy. Any other block whose number
 * exists already begins a new trace, and so does number 0.
 */
static int add(struct reader *r, const struct reader_block *b, struct reader_data *d) {
    size_t at = index_of(r, b->seq);

    if (at < r->nblocks && r->blocks[at].seq == b->seq) {
        if (same_bytes(r, &r->blocks[at], b)) {
            r->repeated++;
            r->repeated_bytes += b->off - b->pos + b->compressed;
            return 0;
        }
        if (b->seq == 0 || reader_load(r, at, d) != -EBADMSG)
            return 1;
        r->blocks[at] = *b;
        return 0;
    }
    if (at < r->nblocks && (b->seq == 0 || r->moved++ >= MOVED_MAX))
        return 1;
    if (r->nblocks == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 256;
        struct reader_block *p = realloc(r->blocks, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        r->blocks = p;
        r->cap = cap;
    }
    memmove(r->blocks + at + 1, r->blocks + at, (r->nblocks - at) * sizeof *r->blocks);
    r->blocks[at] = *b;
    r->nblocks++;
    return 0;
}

int reader_hint(struct reader *r, uint64_t pos, struct reader_block *b) {
    struct trace_hint h;
    size_t n;
    const uint8_t *p = source_view(&r->src, pos, TRACE_HINT_SIZE, &n);

    if (!p || n < 4 || trace_get32(p) != TRACE_HINT_MAGIC)
        return -EBADMSG;
    if (n < TRACE_HINT_SIZE) {
        static const uint8_t want[8] = {60, 0, 0, 0, 'P', 'R', 'B', 'h'};
        size_t k = n - 4 < sizeof want ? n - 4 : sizeof want;
        return memcmp(p + 4, want, k) == 0 ? -EAGAIN : -EBADMSG;
    }
    if (trace_hint_get(p, n, &h) != 0)
        return -EBADMSG;
    if (h.compressed == 0 || h.compressed > ZSTD_compressBound(TRACE_BLOCK_MAX) ||
        h.raw > TRACE_BLOCK_MAX)
        return -EBADMSG;
    if (h.compressed > r->src.size - pos - TRACE_HINT_SIZE)
        return -EAGAIN;
    *b = (struct reader_block){.pos = pos,
                               .off = pos + TRACE_HINT_SIZE,
                               .compressed = h.compressed,
                               .seq = h.seq,
                               .epoch = h.epoch,
                               .count = h.count,
                               .kind = h.kind,
                               .first_ts = h.first_ts,
                               .last_ts = h.last_ts,
                               .types = h.types};
    return 0;
}

/* Fills b from one of our frames at pos that has no (valid) hint in front: decompresses it to find out. */
static int frame_at(struct reader *r, uint64_t pos, struct reader_data *d, struct reader_block *b) {
    size_t n, used = 0;
    const uint8_t *p = source_view(&r->src, pos, 4, &n);

    if (!p || n < 4 || trace_get32(p) != ZSTD_MAGIC || r->trials >= TRIALS_MAX)
        return -EBADMSG;
    r->trials++;
    uint64_t left = r->src.size - pos;
    int err = reader_frame(r, pos, left > SIZE_MAX ? SIZE_MAX : (size_t)left, d, &used);
    if (err == -EPROTONOSUPPORT)
        r->newer++;
    if (err && err != -ENOTSUP)
        return err == -ENOMEM ? err : -EBADMSG;
    r->trials--; /* only unsuccessful trials count */
    *b = (struct reader_block){.pos = pos,
                               .off = pos,
                               .compressed = (uint32_t)used,
                               .seq = d->h.seq,
                               .epoch = d->h.epoch,
                               .count = d->h.count,
                               .kind = d->h.kind,
                               .first_ts = d->h.first_ts,
                               .last_ts = d->h.last_ts,
                               .types = d->h.types};
    return 0;
}

/* Returns the length of another skippable frame at pos, if it is followed by something valid; else 0. */
static uint64_t skippable_at(struct reader *r, uint64_t pos) {
    size_t n;
    const uint8_t *p = source_view(&r->src, pos, 8, &n);

    if (!p || n < 8 || !trace_is_skippable(trace_get32(p)))
        return 0;
    uint32_t magic = trace_get32(p);
    uint64_t len = 8 + (uint64_t)trace_get32(p + 4);
    if (len > r->src.size - pos)
        return 0;
    if (len < r->src.size - pos) { /* otherwise a damaged length could skip good blocks */
        p = source_view(&r->src, pos + len, 4, &n);
        if (!p || n < 4 || (!trace_is_skippable(trace_get32(p)) && trace_get32(p) != ZSTD_MAGIC))
            return 0;
    }
    r->seek_table |= magic == TRACE_SEEK_MAGIC;
    return len;
}

/* Returns the number of zero bytes at the beginning. */
static size_t zeros(const uint8_t *p, size_t n) {
    size_t i = 0;

    while (i < n && p[i] == 0)
        i++;
    return i;
}

/* Finds the next hint or frame of ours at or after pos; *found is the file's size if there is none. Returns 0, -ENOMEM, or -EINTR if source_stopped() ends it. */
static int resync(struct reader *r, uint64_t pos, struct reader_data *d, uint64_t *found) {
    struct reader_block b;

    while (pos + 4 <= r->src.size) {
        size_t n;
        const uint8_t *p = source_view(&r->src, pos, RESYNC_WINDOW, &n);
        size_t i = 0;
        if (!p || n < 4)
            break;
        if (source_stopped && source_stopped())
            return -EINTR;
        if (p[0] == 0 &&
            (i = zeros(p, n)) > SPARSE) { /* as a crash of the machine leaves; a hole may be huge */
            uint64_t data = source_data(&r->src, pos + i - 3);
            pos = data > pos + i - 3 ? data - 3 : pos + i - 3;
            continue;
        }
        i = 0;
        for (; i + 4 <= n; i++) {
            uint8_t c = p[i];
            if (c != 0x5d && c != 0x28)
                continue;
            uint32_t m = trace_get32(p + i);
            if (m == TRACE_HINT_MAGIC || m == ZSTD_MAGIC)
                break;
        }
        if (i + 4 > n) {
            pos += n - 3;
            continue;
        }
        pos += i;
        int err = reader_hint(r, pos, &b);
        if (err == -EBADMSG)
            err = frame_at(r, pos, d, &b);
        if (err == -ENOMEM)
            return err;
        if (err == 0) {
            *found = pos;
            return 0;
        }
        pos++;
    }
    *found = r->src.size;
    return 0;
}

/* Ends the trace where the block of another one begins. lost: where the bytes before that begin which are no block. There are some when the trace was cut
 * off before it was joined to the other. Its last block then may be one that claims to reach into the other trace. */
static void ends_before(struct reader *r, const struct reader_block *next, uint64_t lost) {
    const struct reader_block *last = r->nblocks > 1 ? &r->blocks[r->nblocks - 1] : NULL;

    r->end = next->pos;
    if (last && last->state == READER_BAD && last->off + last->compressed > r->end) {
        lost = last->pos;
        r->nblocks--;
    }
    r->tail = r->end - lost;
}

/* Blocks that were loaded before the trace's end was known were allowed what the rest of the file allows. If that is more than the trace's own
 * length does, they are to be loaded again. */
static void limit_again(struct reader *r) {
    if (reader_allow(r, 0))
        return;
    r->items = 0;
    memset(r->lost, 0, sizeof r->lost);
    for (size_t i = 0; i < r->nblocks; i++)
        if (r->blocks[i].state == READER_GOOD)
            r->blocks[i].state = READER_UNREAD;
}

int reader_index(struct reader *r) {
    struct reader_data d = {0};
    /* upto: where the block begins that is the first after bytes that are none; lost: where these begin, if the block before them is good */
    const struct reader_block *known = r->nblocks ? &r->blocks[r->nblocks - 1] : NULL;
    uint64_t pos = known ? known->off + known->compressed : r->begin, lost = 0, upto = 0;
    int err = 0;

    r->end = r->src.size;
    r->src.walks = 1;
    while (!err && pos < r->src.size) {
        struct reader_block b;
        uint64_t skip;
        int at = reader_hint(r, pos, &b);
        if (at == -EBADMSG && (skip = skippable_at(r, pos)) != 0) {
            r->skipped += skip;
            pos += skip;
            continue;
        }
        int cut = at == -EAGAIN; /* the frame extends past the end, or claims to */
        if (at == -EBADMSG)
            at = frame_at(r, pos, &d, &b);
        if (at == 0) {
            err = add(r, &b, &d);
            if (err > 0)
                ends_before(r, &b, b.pos == upto ? lost : b.pos);
            pos = b.off + b.compressed;
            continue;
        }
        if (at == -ENOMEM) {
            err = at;
            break;
        }
        /* Something is lost here. If the previous block is damaged, its length may be wrong: then search from inside that block. */
        uint64_t from = pos + 1, next = 0;
        if (r->nblocks > 0) {
            struct reader_block *last = &r->blocks[r->nblocks - 1];
            if (last->state == READER_UNREAD && last->off + last->compressed == pos &&
                r->trials < TRIALS_MAX) {
                err = reader_load(r, r->nblocks - 1, &d);
                r->trials++;
                if (err == 0 && last->off + last->compressed < pos) {
                    pos = last->off + last->compressed; /* its hint announced more than it is */
                    continue;
                }
                from = err ? last->off + 1 : from;
            }
        }
        err = resync(r, from, &d, &next);
        if (next >= r->src.size && cut)
            r->tail = r->src.size - pos;
        lost = from == pos + 1 ? pos : next;
        pos = upto = next;
    }
    r->src.walks = 0;
    reader_data_free(&d);
    limit_again(r);
    if (r->nblocks)
        r->first = r->blocks[0];
    return err < 0 ? err : 0;
}
