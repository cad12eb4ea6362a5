/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader_inside.h - inside the reader: its state, and the functions that its files call of each other. reader.c handles a trace as a whole,
 * reader_index.c the walk that makes the index, reader_load.c the loading of single blocks, reader_store.c what is stored of a file that grows.
 * Only for these four files; all others use reader.h.
 */
#ifndef PROBING_CONVERTER_READER_INSIDE_H
#define PROBING_CONVERTER_READER_INSIDE_H

#include "reader.h"
#include "source.h"

struct reader {
    struct source src;
    uint64_t begin, end;         /* range of this trace; the file may hold several */
    struct reader_block *blocks; /* in ascending order of their sequence numbers */
    size_t nblocks, cap;
    uint64_t skipped;        /* bytes of skippable frames that are not hints */
    uint64_t repeated;       /* number of blocks that occur twice */
    uint64_t repeated_bytes; /* size of these blocks in bytes */
    uint64_t tail;
    /* number of frames tried without a hint; limited, because garbage may look like many */
    unsigned trials;
    uint64_t lost[TRACE_NLOST]; /* from the headers of the blocks that were read */
    unsigned moved;             /* number of blocks that came after a block with a higher number */
    uint64_t wrong_hints;
    uint64_t items; /* number used up, see reader_allow() */
    int newer;
    struct reader_block first;     /* the first block as reader_index() found it */
    uint64_t left_out, left_bytes; /* blocks that reader_range() left out, and their bytes */
    uint32_t last_seq;             /* if it left out any: number of the last block before that */
    int seek_table;
    const uint8_t *stored; /* what reader_store() gave, and how many of the blocks are from there */
    size_t nstored;
};

/* reader_index.c: walks the file from `begin`, or behind the blocks that are known already, to the end of that trace. Returns 0 or -ENOMEM; damage is
 * not an error. */
int reader_index(struct reader *r);
/* Fills b from a valid hint at pos whose frame fits into the file. Returns 0, -EBADMSG, or -EAGAIN: the frame is cut off. */
int reader_hint(struct reader *r, uint64_t pos, struct reader_block *b);
/* reader_store.c: does reader_load()'s work for a block with contents that are stored. */
void reader_stored_data(const struct reader *r, const struct reader_block *b,
                        struct reader_data *d);
/* reader.c: makes a trace of r, whose source is open. Closes r if that fails. */
int reader_open_source(struct reader **out, struct reader *r);
/* reader_load.c: decompresses the frame at off, of at most `avail` bytes. */
int reader_frame(struct reader *r, uint64_t off, size_t avail, struct reader_data *d, size_t *used);

#endif
