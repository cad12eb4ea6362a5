/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "../traces/varint.h"
#include "reader_index.h"

void reader_data_free(struct reader_data *d) {
    free(d->raw);
    ZSTD_freeDCtx(d->dctx);
    memset(d, 0, sizeof *d);
}

/* Decompresses the frame at off into d. -EBADMSG, -EPROTONOSUPPORT, -ENOMEM or 0; *used: its size. */
int reader_frame(struct reader *r, uint64_t off, size_t avail, struct reader_data *d,
                 size_t *used) {
    size_t n;
    size_t max = ZSTD_compressBound(TRACE_BLOCK_MAX);

    d->data = NULL;
    d->len = 0;
    if (!d->dctx && !(d->dctx = ZSTD_createDCtx()))
        return -ENOMEM;
    if (avail > max)
        avail = max;
    /* the frame's own header first: garbage must not cost a read of megabytes */
    const uint8_t *p = source_view(&r->src, off, avail < 18 ? avail : 18, &n);
    if (!p)
        return -EBADMSG;
    unsigned long long raw = ZSTD_getFrameContentSize(p, n);
    if (raw == ZSTD_CONTENTSIZE_UNKNOWN || raw == ZSTD_CONTENTSIZE_ERROR || raw > TRACE_BLOCK_MAX ||
        raw < TRACE_BLOCK_HEADER)
        return -EBADMSG;
    p = source_view(&r->src, off, avail, &n);
    if (!p)
        return -EBADMSG;
    size_t frame = ZSTD_findFrameCompressedSize(p, n);
    if (ZSTD_isError(frame))
        return -EBADMSG;
    if (raw > d->cap) {
        free(d->raw);
        d->cap = raw < (128u << 10) ? 128u << 10 : (size_t)raw;
        if (!(d->raw = malloc(d->cap))) {
            d->cap = 0;
            return -ENOMEM;
        }
    }
    size_t len = ZSTD_decompressDCtx(d->dctx, d->raw, d->cap, p, frame);
    if (ZSTD_isError(len) || len != raw)
        return -EBADMSG;
    int err = trace_block_header_get(d->raw, len, &d->h);
    if (err)
        return err == -EPROTONOSUPPORT ? err : -EBADMSG;
    *used = frame;
    if (d->h.encoding != TRACE_ENCODING_ROWS || d->h.kind > TRACE_KIND_DATA)
        return -ENOTSUP;
    d->data = d->raw;
    d->len = len;
    return 0;
}

int reader_allow(struct reader *r, uint64_t n) {
    uint64_t most = READER_ITEMS + READER_ITEMS_A_BYTE * (r->end - r->begin);

    if (n > most - r->items)
        return 0;
    r->items += n;
    return 1;
}

/* How many rows there are, whatever the header says, and of which types; up to where they make no sense. */
static uint64_t count_rows(const struct reader_data *d, uint64_t *types) {
    const uint8_t *p = d->data + d->h.header_len, *end = p + d->h.body_len;
    uint64_t n = 0, id, len;

    for (*types = 0; p < end; n++) {
        p = varint_get(p, end, &id);
        if (!p || !(p = varint_get(p, end, &len)) || len > (uint64_t)(end - p))
            break;
        p += len;
        if (id <= TRACE_MAX_ID)
            *types |= 1ull << id;
    }
    return n;
}

/* From here on the block's own header and rows are right, whatever its hint says. 0; -E2BIG. */
static int take_header(struct reader *r, struct reader_block *b, const struct reader_data *d,
                       size_t used) {
    const struct trace_block_header *h = &d->h;
    uint64_t types, rows = count_rows(d, &types);

    r->wrong_hints += used != b->compressed || b->kind != h->kind || b->epoch != h->epoch ||
                      b->count != h->count || b->types != h->types || b->first_ts != h->first_ts ||
                      b->last_ts != h->last_ts;
    b->compressed = (uint32_t)used;
    b->epoch = h->epoch;
    b->kind = h->kind;
    b->count = rows > UINT32_MAX ? UINT32_MAX : (uint32_t)rows;
    b->types = types;
    b->first_ts = h->first_ts;
    b->last_ts = h->last_ts;
    if (!reader_allow(r, rows))
        return -E2BIG;
    b->state = READER_GOOD;
    for (unsigned k = 0; k < TRACE_NLOST; k++)
        r->lost[k] += h->lost[k];
    return 0;
}

int reader_load(struct reader *r, size_t i, struct reader_data *d) {
    struct reader_block *b = &r->blocks[i];
    size_t used = 0;
    int err;

    if (b->state != READER_UNREAD && b->state != READER_GOOD)
        return b->state == READER_BAD ? -EBADMSG : -ENOTSUP;
    err = reader_frame(r, b->off, b->compressed, d, &used);
    if (err == -ENOMEM)
        return err;
    if (!err && d->h.seq != b->seq)
        err = -EBADMSG; /* not the block that the hint announced */
    if (!err && b->state == READER_UNREAD)
        err = take_header(r, b, d, used);
    if (err) {
        b->state = err == -EPROTONOSUPPORT ? READER_NEWER
                   : err == -ENOTSUP       ? READER_UNKNOWN
                   : err == -E2BIG         ? READER_EXCESS
                                           : READER_BAD;
        r->newer += err == -EPROTONOSUPPORT;
        return err == -EPROTONOSUPPORT ? -ENOTSUP : err == -E2BIG ? -EBADMSG : err;
    }
    return 0;
}

void reader_known(struct reader *r, size_t n, const uint64_t lost[TRACE_NLOST]) {
    for (size_t i = 0; i < r->nblocks; i++)
        r->blocks[i].state = i < n ? READER_GOOD : READER_UNREAD;
    memcpy(r->lost, lost, sizeof r->lost);
}

uint64_t reader_digest(const struct reader *r, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n && i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        const uint64_t facts[] = {b->pos - r->begin,
                                  b->compressed,
                                  (uint64_t)b->seq << 32 | b->epoch,
                                  (uint64_t)b->count << 8 | b->kind,
                                  b->first_ts,
                                  b->last_ts,
                                  b->types};
        for (size_t k = 0; k < sizeof facts / sizeof *facts; k++) {
            h = (h ^ facts[k]) * 0xff51afd7ed558ccdu;
            h ^= h >> 32;
        }
    }
    return h;
}

int reader_error(const struct reader *r) {
    return r->src.error;
}

int reader_check(struct reader *r) {
    struct reader_data d = {0};
    int err = 0;

    for (size_t i = 0; i < r->nblocks && err != -ENOMEM; i++)
        if (r->blocks[i].state == READER_UNREAD)
            err = reader_load(r, i, &d);
    reader_data_free(&d);
    return err == -ENOMEM ? err : 0;
}

void reader_damaged(struct reader *r, size_t i) {
    r->blocks[i].state = READER_BAD;
}

int reader_loss(struct reader *r, struct reader_loss *out) {
    uint64_t covered = r->skipped, have = r->end - r->begin;
    int err = reader_check(r);

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < r->nblocks; i++) {
        struct reader_block *b = &r->blocks[i];
        if (b->state == READER_BAD) {
            out->damaged_blocks++;
            out->damaged_records += b->count;
        } else {
            covered += b->off - b->pos + b->compressed;
            out->newer_blocks += b->state == READER_NEWER;
            out->unknown_blocks += b->state == READER_UNKNOWN;
            out->excess_blocks += b->state == READER_EXCESS;
        }
    }
    if (r->nblocks) {
        uint32_t last = r->left_out ? r->last_seq : r->blocks[r->nblocks - 1].seq;
        out->missing_blocks = (uint64_t)last + 1 - r->nblocks - r->left_out;
    }
    covered += r->left_bytes;
    out->wrong_hints = r->wrong_hints;
    out->repeated_blocks = r->repeated;
    out->tail_bytes = r->tail;
    covered += r->tail + r->repeated_bytes;
    out->damaged_bytes = have > covered ? have - covered : 0;
    out->seek_table = r->seek_table;
    return err;
}

void reader_totals(const struct reader *r, struct reader_totals *out) {
    memset(out, 0, sizeof *out);
    memcpy(out->lost, r->lost, sizeof out->lost);
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        if (b->state != READER_GOOD)
            continue;
        out->records += b->count;
        if (b->last_ts && (!out->last_ts || b->first_ts < out->first_ts))
            out->first_ts = b->first_ts;
        if (b->last_ts > out->last_ts)
            out->last_ts = b->last_ts;
    }
}

/* Tells a newer version, another zstd file and something else apart. */
static int why_nothing(struct reader *r) {
    static const uint8_t ours[12] = {0x5d, 0x2a, 0x4d, 0x18, 60, 0, 0, 0, 'P', 'R', 'B', 'h'};
    size_t n;
    const uint8_t *p = source_view(&r->src, 0, sizeof ours, &n);

    if (r->newer)
        return -EPROTONOSUPPORT;
    if (!p)
        return -EIO;
    if (memcmp(p, ours, n) == 0 && (r->tail || r->src.size < TRACE_HINT_SIZE))
        return -ENOMSG;
    if (n >= 4 && (memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0 ||
                   ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", 3) == 0)))
        return -EBADMSG;
    return -EILSEQ;
}

static int open_source(struct reader **out, struct reader *r) {
    int err = r->src.size == 0 ? -ENODATA : reader_index(r);
    size_t good = 0;

    /* one block that can be read makes it a trace; damage may have hit any of them */
    struct reader_data d = {0};
    for (size_t i = 0; !err && i < r->nblocks && !good; i++) {
        int e = reader_load(r, i, &d);
        if (e == -ENOMEM)
            err = e;
        good += e == 0;
    }
    reader_data_free(&d);
    if (!err && !good)
        err = why_nothing(r);
    if (err) {
        reader_close(r);
        return err;
    }
    *out = r;
    return 0;
}

int reader_open(struct reader **out, const char *path) {
    struct reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return -ENOMEM;
    int err = source_open(&r->src, path);
    if (err) {
        free(r);
        return err;
    }
    return open_source(out, r);
}

int reader_open_memory(struct reader **out, const void *p, size_t n) {
    struct reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return -ENOMEM;
    source_memory(&r->src, p, n);
    return open_source(out, r);
}

void reader_close(struct reader *r) {
    if (!r)
        return;
    source_close(&r->src);
    free(r->blocks);
    free(r);
}

int reader_is_last(const struct reader *r) {
    return r->end >= r->src.size;
}

int reader_next(struct reader *r) {
    struct reader next = {.src = r->src, .begin = r->end, .blocks = r->blocks, .cap = r->cap};

    if (reader_is_last(r))
        return 0;
    *r = next;
    int err = reader_index(r);
    return err ? err : 1;
}

const char *reader_strerror(int err) {
    switch (err) {
    case 0:
        return "no error";
    case -ENODATA:
        return "the file is empty";
    case -ENOMSG:
        return "the trace is cut off within its first block: nothing to keep";
    case -EILSEQ:
        return "not a trace (not a zstd file)";
    case -EBADMSG:
        return "not a trace (a zstd file, but no block in it can be read)";
    case -EPROTONOSUPPORT:
        return "the trace was written by a newer version of probing: update this one";
    default:
        return strerror(-err);
    }
}

void reader_range(struct reader *r, uint64_t lo, uint64_t hi, uint64_t types) {
    size_t n = 0;

    if (r->nblocks)
        r->last_seq = r->blocks[r->nblocks - 1].seq;
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct reader_block *b = &r->blocks[i];
        int wanted = b->kind != TRACE_KIND_DATA || b->types & READER_ALWAYS ||
                     (b->types & types && (!b->last_ts || (b->last_ts >= lo && b->first_ts <= hi)));
        if (wanted) {
            r->blocks[n++] = *b;
            continue;
        }
        r->left_out++;
        r->left_bytes += b->off - b->pos + b->compressed;
    }
    r->nblocks = n;
}

size_t reader_blocks(const struct reader *r) {
    return r->nblocks;
}
const struct reader_block *reader_block(const struct reader *r, size_t i) {
    return &r->blocks[i];
}
uint64_t reader_file_size(const struct reader *r) {
    return r->src.size;
}

uint64_t reader_size(const struct reader *r) {
    return r->end - r->begin;
}
