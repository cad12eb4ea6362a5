/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_merge.h - merges the small blocks of a recording into fewer, larger ones: a writer ends a block each second or so, and a compressor
 * cannot do much with a few KB.
 *
 *     struct pack_merge m = {.b = b};
 *     pack_merge_put(&m, &header, rows) ...;   // blocks of one trace, in order; what has become large enough goes into b
 *     pack_merge_flush(&m);                    // writes the rest
 *     pack_merge_free(&m);
 *
 * Consecutive blocks of one kind and epoch become one block of at most PACK_MERGED bytes, before compression, so that a reader who wants a
 * part of the time can still find it. Rows stay the same; in a data block the rows of one type stand together, in their order (a reader
 * keeps differences by type, FORMAT.md 4.2). Dictionaries are written before the data that was held back with them. Block 0 and the block
 * with the `end` record are copied unmerged, and so is a block with rows of an unknown type or length. Functions return 0 or -errno.
 */
#ifndef PROBING_TOOLS_PACK_MERGE_H
#define PROBING_TOOLS_PACK_MERGE_H

#include "block_out.h"

#define PACK_MERGED (1u << 20)

struct pack_merge {
    struct block_out *b; /* borrowed */
    struct pack_held {
        struct trace_block_header h; /* the sum of the headers below */
        struct pack_held_block {
            struct trace_block_header h;
            uint8_t *rows; /* malloc */
        } * block;
        size_t n, cap;
    } held[3]; /* one for each kind of block */
};

/* Copies the rows (h->body_len bytes). */
int pack_merge_put(struct pack_merge *m, const struct trace_block_header *h, const uint8_t *rows);
int pack_merge_flush(struct pack_merge *m);
void pack_merge_free(struct pack_merge *m);

#endif
