/* SPDX-License-Identifier: Apache-2.0 */
#include "block_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (256u << 10) /* bytes, uncompressed: a block that is this long is ended */

struct block_out *block_out_new(int level, uint32_t seq, uint32_t epoch) {
    struct block_out *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->seq = seq;
    encoder_init(&b->enc);
    b->dicts.epoch = epoch;
    b->zstd = ZSTD_createCCtx();
    if (!b->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(b->zstd, ZSTD_c_compressionLevel, level)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(b->zstd, ZSTD_c_checksumFlag, 1))) {
        block_out_free(b);
        return NULL;
    }
    return b;
}

void block_out_free(struct block_out *b) {
    if (!b)
        return;
    encoder_free(&b->enc);
    dicts_free(&b->dicts);
    ZSTD_freeCCtx(b->zstd);
    free(b->bytes);
    free(b);
}

static int grow(struct block_out *b, size_t n) {
    if (n <= b->cap - b->n)
        return 0;
    size_t cap = b->n + n + b->cap / 2;
    uint8_t *p = realloc(b->bytes, cap);
    if (!p)
        return -ENOMEM;
    b->bytes = p;
    b->cap = cap;
    return 0;
}

/* Appends a hint and, after it, a zstd frame of the n raw bytes. */
static int put_frame(struct block_out *b, const uint8_t *raw, size_t n, struct trace_hint *hint) {
    size_t bound = ZSTD_compressBound(n);
    int rc = grow(b, TRACE_HINT_SIZE + bound);

    if (rc)
        return rc;
    size_t k = ZSTD_compress2(b->zstd, b->bytes + b->n + TRACE_HINT_SIZE, bound, raw, n);
    if (ZSTD_isError(k))
        return -ENOMEM;
    hint->compressed = (uint32_t)k;
    trace_hint_put(b->bytes + b->n, hint);
    b->n += TRACE_HINT_SIZE + k;
    b->seq++;
    return 0;
}

int block_out_end(struct block_out *b) {
    static const uint64_t none[TRACE_NLOST];
    int rc = 0;

    for (unsigned k = 0; !rc && k < NKINDS; k++) {
        struct builder *block = &b->enc.block[k];
        struct trace_hint hint;
        if (!block->count)
            continue;
        size_t n = builder_finish(block, b->seq, b->dicts.epoch, none, &hint);
        rc = put_frame(b, block->buf, n, &hint);
        builder_reset(block);
    }
    return rc;
}

int block_out_put(struct block_out *b, unsigned type, struct writer_value *v) {
    int rc = encode_record(&b->enc, &b->dicts, trace_record_by_id(type), v);

    for (unsigned k = 0; !rc && k < NKINDS; k++)
        if (b->enc.block[k].len >= LARGE)
            rc = block_out_end(b);
    return rc;
}

int block_out_copy(struct block_out *b, const struct trace_block_header *h, const uint8_t *rows) {
    struct trace_block_header own = *h;
    size_t n = TRACE_BLOCK_HEADER + (size_t)h->body_len;
    uint8_t *raw = malloc(n);
    int rc = raw ? 0 : -ENOMEM;

    own.seq = b->seq;
    if (!rc) {
        struct trace_hint hint = trace_hint_of(&own);
        trace_block_header_put(raw, &own);
        memcpy(raw + TRACE_BLOCK_HEADER, rows, h->body_len);
        rc = put_frame(b, raw, n, &hint);
    }
    free(raw);
    return rc;
}
