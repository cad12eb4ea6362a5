/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_merge.h - the small blocks of a recording as fewer, larger ones: a writer ends a block each second or so, and a compressor finds
 * little in a few KB.
 *
 *     struct pack_merge m = {.b = b};
 *     pack_merge_put(&m, &header, rows) ...;   // blocks of one trace, in order; what has become large goes into b
 *     pack_merge_flush(&m);                    // the rest
 *     pack_merge_free(&m);
 *
 * Blocks of one kind and epoch that follow each other become one of at most PACK_MERGED bytes, raw, so that who wants a part of the time
 * still finds it. Rows are the same; in a block of data those of one type stand together, each type in its order (a reader keeps
 * differences by type, FORMAT.md 4.2). Dictionaries go before the data that was held with them. Block 0 and the one with `end` are
 * taken over alone, as is a block with rows of a type or length that we do not know. Functions return 0 or -errno.
 */
#ifndef PROBING_TOOLS_PACK_MERGE_H
#define PROBING_TOOLS_PACK_MERGE_H

#include "block_out.h"

#define PACK_MERGED (1u << 20)

struct pack_merge {
    struct block_out *b; /* borrowed */
    struct pack_held {
        struct trace_block_header h; /* the sum of those below */
        struct pack_held_block {
            struct trace_block_header h;
            uint8_t *rows; /* malloc */
        } * block;
        size_t n, cap;
    } held[3]; /* by kind */
};

/* Copies the rows (h->body_len bytes). */
int pack_merge_put(struct pack_merge *m, const struct trace_block_header *h, const uint8_t *rows);
int pack_merge_flush(struct pack_merge *m);
void pack_merge_free(struct pack_merge *m);

#endif
