/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader_inside.h - inside the reader: its state, and what its files call of each other: reader.c (a trace as a whole) the walk that
 * makes the index, and that the loading of single blocks. For these three only; everybody else uses reader.h.
 */
#ifndef PROBING_CONVERTER_READER_INSIDE_H
#define PROBING_CONVERTER_READER_INSIDE_H

#include "reader.h"
#include "source.h"

struct reader {
    struct source src;
    uint64_t begin, end;         /* of this trace: the file may hold several */
    struct reader_block *blocks; /* by their sequence numbers, which ascend */
    size_t nblocks, cap;
    uint64_t skipped;        /* bytes of skippable frames that are not hints */
    uint64_t repeated;       /* blocks */
    uint64_t repeated_bytes; /* their bytes */
    uint64_t tail;
    unsigned trials;            /* frames tried without a hint: bounded, garbage may hold many */
    uint64_t lost[TRACE_NLOST]; /* of the headers of blocks read */
    unsigned moved;             /* blocks that came after one with a higher number */
    uint64_t wrong_hints;
    uint64_t items; /* spent, see reader_allow() */
    int newer;
    uint64_t left_out, left_bytes; /* blocks, their bytes: reader_range() */
    uint32_t last_seq;             /* then: of the last block before */
    int seek_table;
};

/* reader_index.c: walks the file from `begin` to the end of that trace. 0, -ENOMEM. Damage is no error. */
int reader_index(struct reader *r);
/* reader_load.c: the frame at off, at most `avail` bytes. */
int reader_frame(struct reader *r, uint64_t off, size_t avail, struct reader_data *d, size_t *used);

#endif
