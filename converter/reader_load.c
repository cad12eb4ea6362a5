/* SPDX-License-Identifier: Apache-2.0 */
/* reader_load.c - decompresses the frame of one block, and replaces what its hint says by its own header and rows. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "../traces/varint.h"
#include "reader_inside.h"

/*
 * Contexts that are not in use. For each new context zstd asks which processor this is, which a virtual machine takes some 20 us to answer:
 * with thousands of small traces this was a sixth of the total time.
 */
static struct {
    pthread_mutex_t lock;
    ZSTD_DCtx *context[16];
    unsigned n;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is never waited for, because it stays locked for ever in the child of a fork that came at a bad time. */
static int try_idle(void) {
    return pthread_mutex_trylock(&idle.lock) == 0;
}

static ZSTD_DCtx *take_context(void) {
    ZSTD_DCtx *c = NULL;

    if (try_idle()) {
        c = idle.n ? idle.context[--idle.n] : NULL;
        pthread_mutex_unlock(&idle.lock);
    }
    return c ? c : ZSTD_createDCtx();
}

static void give_context(ZSTD_DCtx *c) {
    if (c && try_idle()) {
        if (idle.n < sizeof idle.context / sizeof *idle.context) {
            idle.context[idle.n++] = c;
            c = NULL;
        }
        pthread_mutex_unlock(&idle.lock);
    }
    ZSTD_freeDCtx(c);
}

/* Also runs when the extension is unloaded. */
__attribute__((destructor)) static void free_contexts(void) {
    if (!try_idle())
        return;
    while (idle.n)
        ZSTD_freeDCtx(idle.context[--idle.n]);
    pthread_mutex_unlock(&idle.lock);
}

void reader_data_free(struct reader_data *d) {
    free(d->raw);
    give_context(d->dctx);
    memset(d, 0, sizeof *d);
}

/* Decompresses the frame at off into d, and sets *used to its size. Returns 0, -EBADMSG, -EPROTONOSUPPORT, -ENOTSUP or -ENOMEM. */
int reader_frame(struct reader *r, uint64_t off, size_t avail, struct reader_data *d,
                 size_t *used) {
    size_t n;
    size_t max = ZSTD_compressBound(TRACE_BLOCK_MAX);

    d->data = NULL;
    d->len = 0;
    if (!d->dctx && !(d->dctx = take_context()))
        return -ENOMEM;
    if (avail > max)
        avail = max;
    /* look at the frame's own header first: garbage must not cause a read of megabytes */
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

    if (r->items > most || n > most - r->items)
        return 0;
    r->items += n;
    return 1;
}

/* Counts the rows and collects their types, whatever the header says, up to the first invalid one. */
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

/* Replaces what the hint says by the block's own header and rows, which are used from here on. Returns 0 or -E2BIG. */
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

    if (b->state > READER_GOOD)
        return b->state == READER_BAD ? -EBADMSG : -ENOTSUP;
    if (b->raw) {
        reader_stored_data(r, b, d);
        err = 0;
        used = b->compressed;
    } else {
        err = reader_frame(r, b->off, b->compressed, d, &used);
    }
    if (err == -ENOMEM)
        return err;
    if (!err && d->h.seq != b->seq)
        err = -EBADMSG; /* it is not the block that the hint announced */
    if (!err && b->state != READER_GOOD)
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
