/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader_index.h - inside the reader: its state, and the walk over the file that makes the index.
 * For reader.c and reader_index.c only; everybody else uses reader.h.
 */
#ifndef PROBING_CONVERTER_READER_INDEX_H
#define PROBING_CONVERTER_READER_INDEX_H

#include "reader.h"
#include "source.h"

struct reader {
    struct source src;
    struct reader_block *blocks;
    size_t nblocks, cap;
    struct run { /* sequence numbers seen, as disjoint ascending runs */
        uint32_t first, last;
    } * runs;
    size_t nruns, runs_cap;
    uint64_t skipped;        /* bytes of skippable frames that are not hints */
    uint64_t repeated;       /* blocks */
    uint64_t repeated_bytes; /* their bytes */
    uint64_t tail;
    unsigned trials;            /* frames tried without a hint: bounded, garbage may hold many */
    uint64_t lost[TRACE_NLOST]; /* of the headers of blocks read */
    int newer;
    int seek_table;
};

/* Walks the whole file. 0, -ENOMEM. Damage is no error. */
int reader_index(struct reader *r);
/* Sequence numbers below the highest that were not seen. */
uint64_t reader_missing(const struct reader *r);
/* reader.c: the frame at off, at most `avail` bytes. */
int reader_frame(struct reader *r, uint64_t off, size_t avail, struct reader_data *d, size_t *used);

#endif
