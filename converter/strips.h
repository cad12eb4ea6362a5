/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strips.h - keeps aside the few rows of a data block that are neither samples nor torch's calls.
 *
 * Nearly all rows of a trace are samples, and nearly all its bytes are samples and torch's calls; cpu, memory and the like are sparse
 * between them. The pass that reads the samples copies these other rows here, so that later passes need not decompress the whole trace
 * again for each kind of record. (Differences are encoded per type, so the rest of a block can still be decoded when a whole type is taken
 * out.) Memory is bounded: once the bound is reached, blocks are read again instead.
 *
 *     strips_take(&st, i, &data.h, data.data, STRIPS_TYPES);       // 0, or -ENOMEM
 *     if (strips_rows(&st, i, &h, &rows)) trace_rows_start(&r, &h, rows);
 */
#ifndef PROBING_CONVERTER_STRIPS_H
#define PROBING_CONVERTER_STRIPS_H

#include "../traces/block.h"

#define STRIPS_MAX   (16u << 20)
#define STRIPS_TYPES (~(1ull << TRACE_sample | 1ull << TRACE_torch_calls))

struct strips {
    struct strip {
        uint8_t *rows;
        uint32_t n;
        int taken;
        uint64_t first_ts;
    } * at; /* indexed by block */
    size_t nblocks, bytes;
};

/* Takes the rows of block i whose types are set in `keep` (bits). A block with invalid rows is not taken. */
int strips_take(struct strips *st, size_t i, const struct trace_block_header *h,
                const uint8_t *block, uint64_t keep);
/* Gives the rows of block i, with a header for reading them. Returns 0 when they were not taken. */
int strips_rows(const struct strips *st, size_t i, struct trace_block_header *h,
                const uint8_t **rows);
void strips_free(struct strips *st);

#endif
