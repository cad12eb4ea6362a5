/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_out.h - makes blocks of a trace in memory: records of our own, and blocks of other traces taken over.
 *
 *     struct block_out *b = block_out_new(level, next seq, epoch);
 *     block_out_put(b, TRACE_symbol, v);            // keys, not ids: as writer_emit()
 *     block_out_end(b);                             // what was put makes a block, though it be small
 *     write(fd, b->bytes, b->n); b->n = 0;          // frames and their hints, whole ones
 *     block_out_free(b);
 *
 * Functions return 0 or -errno; after an error nothing may be put any more. One thread at a time.
 */
#ifndef PROBING_TOOLS_BLOCK_OUT_H
#define PROBING_TOOLS_BLOCK_OUT_H

#include <zstd.h>

#include "../writer/encode.h"

struct block_out {
    uint8_t *bytes; /* malloc */
    size_t n, cap;
    uint32_t seq; /* of the next block */
    struct encoder enc;
    struct dicts dicts; /* with the epoch that records put here are in */
    ZSTD_CCtx *zstd;
};

/* NULL: no memory */
struct block_out *block_out_new(int level, uint32_t seq, uint32_t epoch);
void block_out_free(struct block_out *b);
int block_out_put(struct block_out *b, unsigned type, struct writer_value *v);
int block_out_end(struct block_out *b);
/* A whole block, header and rows, as h says them; it gets the next number, and the epoch of h. */
int block_out_copy(struct block_out *b, const struct trace_block_header *h, const uint8_t *rows);

#endif
