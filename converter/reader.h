/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.h - finds and reads the blocks of a trace file, whole or damaged.
 *
 *     struct reader *r;
 *     struct reader_data d = {0};
 *     int err = reader_open(&r, "trace.zst");
 *     for (size_t i = 0; i < reader_blocks(r); i++)
 *         if (reader_block(r, i)->types >> TRACE_sample & 1 && reader_load(r, i, &d) == 0)
 *             ... trace_rows_start(&rows, &d.h, d.data) ...
 *     if (reader_next(r) > 0) ... the same for the next trace of the file ...
 *     reader_data_free(&d);
 *     reader_close(r);
 *
 * Opening walks the hint frames and makes an index (80 bytes a block); no block but the first is
 * decompressed before somebody asks for it, so that skipping by type and by time is free. Where
 * neither a hint nor a frame of ours stands, the walk goes on at the next one that does: damage
 * costs the blocks it hits and no other. What was lost is in struct reader_loss.
 *
 * Nothing in the file is trusted: sizes are bounded by TRACE_BLOCK_MAX, a frame that claims more is
 * damage. A hint is believed until its block is read; reader_check() reads all. What a trace may become is bounded by its
 * length: READER_ITEMS_A_BYTE. One thread at a time.
 */
#ifndef PROBING_CONVERTER_READER_H
#define PROBING_CONVERTER_READER_H

#include "../traces/block.h"

struct reader;

/* PASSED: unread, and to be left so (reader_want); NEWER: of a newer version of the format; UNKNOWN: of a kind or encoding that later
 * writers may add; EXCESS: more rows than the file's length allows */
enum reader_state {
    READER_UNREAD,
    READER_PASSED,
    READER_GOOD,
    READER_BAD,
    READER_NEWER,
    READER_UNKNOWN,
    READER_EXCESS
};

/* Rows, frames of distinct stacks, entries of lists and each 64 bytes of text are items: so many for each byte of the trace,
 * and so many besides. Real traces have one or two a byte. A few bytes of zstd can say megabytes. */
#define READER_ITEMS_A_BYTE 64
#define READER_ITEMS        (256u << 10)

/* One block, as its hint describes it (after reader_load: as its own header does). */
struct reader_block {
    uint64_t pos, off; /* of the hint (or frame, when there is no hint), of the zstd frame */
    uint32_t compressed;
    uint32_t seq, epoch, count;
    uint8_t kind;
    uint8_t state; /* enum reader_state */
    uint64_t first_ts, last_ts, types;
};

/* A decompressed block; zero it first, reuse it, free it at the end. */
struct reader_data {
    struct trace_block_header h;
    const uint8_t *data; /* header and rows */
    size_t len;
    uint8_t *raw; /* private: buffers */
    size_t cap;
    void *dctx;
};

/* What the file does not give back. Records in blocks that are missing altogether cannot be known. */
struct reader_loss {
    uint64_t damaged_blocks;  /* announced by a hint or a header, and not readable */
    uint64_t damaged_records; /* records that those held */
    uint64_t damaged_bytes;   /* bytes that belong to no readable block */
    uint64_t missing_blocks;  /* gaps in the sequence: gone without a trace */
    uint64_t repeated_blocks; /* in the file twice, byte by byte: taken once */
    uint64_t excess_blocks;   /* left out: more rows than the file's length allows */
    uint64_t wrong_hints;     /* contradicted by their blocks, which are right */
    uint64_t tail_bytes;      /* at the end: the beginning of a block that was cut off */
    uint64_t newer_blocks;    /* blocks of a newer version: left out */
    uint64_t unknown_blocks;  /* of an unknown kind or encoding: to be passed over */
    int seek_table;           /* closed by its writer */
};

/*
 * Opens path ("-": stdin) and indexes it. 0, or
 *   -ENODATA         the file is empty
 *   -ENOMSG          a trace, cut off within its first block
 *   -EILSEQ          not a zstd file
 *   -EBADMSG         a zstd file, but no block of a trace in it
 *   -EPROTONOSUPPORT a trace, but of a newer version
 *   other -errno     it could not be opened or read, or there is no memory
 */
int reader_open(struct reader **out, const char *path);
/* The same for n bytes in memory, borrowed until reader_close(). */
int reader_open_memory(struct reader **out, const void *p, size_t n);
void reader_close(struct reader *r);
/*
 * What opening found out, for whoever opens the same file again: the walk over a large one takes longer than the blocks of its last minute.
 * To be called before anything else is done with r; to be given to free(). NULL: not kept (more than *budget bytes, which get fewer;
 * another trace behind this one; no memory). reader_open_kept(): as reader_open(), and with it where the file has that size still.
 */
struct reader_kept *reader_keep(const struct reader *r, size_t *budget);
int reader_open_kept(struct reader **out, const char *path, const struct reader_kept *kept);
/* Goes on to the next trace of the file (traces may be joined end to end). 1; 0: there is none; -ENOMEM. */
int reader_next(struct reader *r);
/* Whether that would find none: nothing comes behind this trace. */
int reader_is_last(const struct reader *r);
/* One line on what an error of reader_open() means. Static storage. */
const char *reader_strerror(int err);

/*
 * Leaves out the blocks of data that hold nothing of types, or nothing from lo to hi (CLOCK_MONOTONIC, ns): as if they were not in
 * the trace, but not as lost. What names things (threads, groups) stays, whenever it was, and so does what the trace says of itself; of the
 * clock's anchors, some each minute, those from lo to hi and the next one on either side. By what hints say: nothing is read.
 */
void reader_range(struct reader *r, uint64_t lo, uint64_t hi, uint64_t types);
/* Records of these types say what others are about, and are wanted whatever part of a trace is. */
#define READER_ALWAYS                                                                              \
    (1ull << TRACE_thread | 1ull << TRACE_process_group | 1ull << TRACE_module_unload |            \
     1ull << TRACE_children)

/* Of the blocks that hold clock anchors alone those from *first to *end (excluded) matter from lo to hi: they lie there, or next to it. */
void reader_anchors(const struct reader *r, uint64_t lo, uint64_t hi, size_t *first, size_t *end);
int reader_has_anchors_alone(const struct reader *r, size_t i);

/* The same where the rest may be asked for later: blocks of data that hold nothing of types are no more read by reader_check(), but count. */
void reader_want(struct reader *r, uint64_t types);

size_t reader_blocks(const struct reader *r);
const struct reader_block *reader_block(const struct reader *r, size_t i);
/* -errno of a read that failed (what it would have given then counts as damaged), 0: none did. */
int reader_error(const struct reader *r);
uint64_t reader_size(const struct reader *r);      /* bytes of the trace */
uint64_t reader_file_size(const struct reader *r); /* and of the whole file */

/* Decompresses block i and checks it. 0; -EBADMSG: damaged (and counted); -ENOTSUP: not for this
 * reader (counted too); -ENOMEM. */
int reader_load(struct reader *r, size_t i, struct reader_data *d);
void reader_data_free(struct reader_data *d);
/* A caller that finds rows of block i senseless says so here; it then counts as damaged. */
void reader_damaged(struct reader *r, size_t i);

/*
 * For who has read the first n blocks before, when nothing was wrong with them: they count as read, and what they said was lost is lost[].
 * It is to be called before any block but the first is loaded. Whether they are the same is told by reader_digest(): of their places,
 * lengths and hints. n 0 takes it back.
 */
void reader_known(struct reader *r, size_t n, const uint64_t lost[TRACE_NLOST]);
uint64_t reader_digest(const struct reader *r, size_t n);

/* Reads all blocks once (but for reader_want): then nothing depends on hints any more. 0 or -ENOMEM. */
int reader_check(struct reader *r);
/* Whether n more items may be made of this trace; counts them. */
int reader_allow(struct reader *r, uint64_t n);

/* What was lost. Loads the blocks that nobody has read yet. 0 or -ENOMEM. */
int reader_loss(struct reader *r, struct reader_loss *out);

/* What the headers of the blocks read so far say; complete after reader_loss(). */
struct reader_totals {
    uint64_t records;
    uint64_t first_ts, last_ts; /* 0, 0: no times */
    uint64_t lost[TRACE_NLOST]; /* what the writer could not record, by reason */
};
void reader_totals(const struct reader *r, struct reader_totals *out);

#endif
