/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_out.h - builds trace blocks in memory, from records of our own and from blocks of other traces.
 *
 *     struct block_out *b = block_out_new(level, next seq, epoch);
 *     block_out_put(b, TRACE_symbol, v);            // with keys in place of ids, as in writer_emit()
 *     block_out_end(b);                             // ends the block, however small it is
 *     write(fd, b->bytes, b->n); b->n = 0;          // whole frames with their hints
 *     block_out_free(b);
 *
 * Functions return 0 or -errno; after an error nothing more may be put. One thread at a time.
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
    struct dicts dicts; /* with the epoch of the records that are put here */
    ZSTD_CCtx *zstd;
};

/* NULL: no memory */
struct block_out *block_out_new(int level, uint32_t seq, uint32_t epoch);
void block_out_free(struct block_out *b);
int block_out_put(struct block_out *b, unsigned type, struct writer_value *v);
int block_out_end(struct block_out *b);
/* Adds a whole block, header and rows, as described by h; it gets the next sequence number, and keeps the epoch of h. */
int block_out_copy(struct block_out *b, const struct trace_block_header *h, const uint8_t *rows);

#endif
