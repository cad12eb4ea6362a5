/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strips.h - the few rows of a data block that are neither samples nor torch's calls, kept aside.
 *
 * Nearly all rows of a trace are samples, and nearly all its bytes these and torch's calls; cpu, memory and the like lie thinly between them.
 * The pass that reads the samples copies those others here, so that the passes after it need not decompress the
 * whole trace again for each kind of record. (Differences are per type, so what is left of a block
 * when a whole type is taken out can be decoded as it is.) Bounded: where the bound is reached, blocks are read
 * again instead.
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
    } * at; /* by block */
    size_t nblocks, bytes;
};

/* Takes the rows of block i whose types (bits) are to be kept. A block with senseless rows is not taken. */
int strips_take(struct strips *st, size_t i, const struct trace_block_header *h,
                const uint8_t *block, uint64_t keep);
/* The rows of block i, with a header to start reading them with; 0: not taken. */
int strips_rows(const struct strips *st, size_t i, struct trace_block_header *h,
                const uint8_t **rows);
void strips_free(struct strips *st);

#endif
