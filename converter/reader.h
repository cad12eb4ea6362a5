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
 * Opening walks the hint frames and makes an index (80 bytes for each block). No block but the first is decompressed until somebody asks
 * for it, so skipping blocks by type and by time costs nothing. Where there is neither a hint nor one of our frames, the walk continues at
 * the next one it finds: damage costs the damaged blocks and no others. struct reader_loss says what was lost.
 *
 * Nothing in the file is trusted: sizes are limited by TRACE_BLOCK_MAX, and a frame that claims more is damage. A hint is believed until
 * its block is read; reader_check() reads all blocks. What a trace may expand to is limited by its length: READER_ITEMS_A_BYTE. One thread
 * at a time.
 */
#ifndef PROBING_CONVERTER_READER_H
#define PROBING_CONVERTER_READER_H

#include "../traces/block.h"

struct reader;

/* PASSED: not read, and not to be read (reader_want()); NEWER: of a newer version of the format; UNKNOWN: of a kind or encoding that a
 * later writer may add; EXCESS: has more rows than the length of the file allows. */
enum reader_state {
    READER_UNREAD,
    READER_PASSED,
    READER_GOOD,
    READER_BAD,
    READER_NEWER,
    READER_UNKNOWN,
    READER_EXCESS
};

/* An item is a row, a frame of a distinct stack, an entry of a list, or 64 bytes of text. A trace may have this many for each byte of its
 * length, plus a constant. Real traces have one or two for each byte; the limit is needed because a few bytes of zstd can expand to
 * megabytes. */
#define READER_ITEMS_A_BYTE 64
#define READER_ITEMS        (256u << 10)

/* One block, as described by its hint (after reader_load(): by its own header). */
struct reader_block {
    /* places of the hint (of the frame when there is no hint) and of the zstd frame */
    uint64_t pos, off;
    uint32_t compressed;
    uint32_t seq, epoch, count;
    uint8_t kind;
    uint8_t state; /* enum reader_state */
    uint32_t
        raw; /* private: where its decompressed contents are stored (reader_store()); 0: nowhere */
    uint64_t first_ts, last_ts, types;
};

/* A decompressed block. Zero it first; it can be reused; free it at the end. */
struct reader_data {
    struct trace_block_header h;
    const uint8_t *data; /* header and rows */
    size_t len;
    uint8_t *raw; /* private: buffers */
    size_t cap;
    void *dctx;
};

/* What could not be read from the file. Records in blocks that are missing altogether are not known. */
struct reader_loss {
    uint64_t damaged_blocks;  /* announced by a hint or a header, but not readable */
    uint64_t damaged_records; /* records in those blocks */
    uint64_t damaged_bytes;   /* bytes that belong to no readable block */
    uint64_t missing_blocks;  /* gaps in the sequence numbers: blocks that left no other trace */
    uint64_t repeated_blocks; /* blocks that occur twice, byte by byte the same: used once */
    /* left out, because they have more rows than the length of the file allows */
    uint64_t excess_blocks;
    uint64_t wrong_hints;    /* hints that contradict their blocks; the blocks are right */
    uint64_t tail_bytes;     /* at the end: the beginning of a block that was cut off */
    uint64_t newer_blocks;   /* blocks of a newer version: left out */
    uint64_t unknown_blocks; /* blocks of an unknown kind or encoding, which are skipped */
    int seek_table;          /* 1: the writer has closed the file */
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
/* Does the same for n bytes in memory, which are borrowed until reader_close(). */
int reader_open_memory(struct reader **out, const void *p, size_t n);
void reader_close(struct reader *r);
/*
 * reader_keep() returns what opening the file found out, for whoever opens it again: the walk over a large file takes longer than reading
 * the blocks of its last minute. Call it before anything else is done with r, and free() the result. It returns NULL when nothing is kept:
 * because it takes more than *budget bytes (from which its size is subtracted), another trace follows this one, or there is no memory.
 * reader_open_kept() does the same as reader_open(), and uses `kept` if the file still has the same size.
 */
struct reader_kept *reader_keep(const struct reader *r, size_t *budget);
int reader_open_kept(struct reader **out, const char *path, const struct reader_kept *kept);
/*
 * The same for a file that grows and is opened again by another process: a question to a running process should not take longer with each
 * hour that it has been recorded. reader_store() returns the index of its blocks, and the contents of those with clock anchors alone, which are
 * read for every question; free() it. It returns NULL, *n 0, when that is not worthwhile: few blocks have been added to what r was opened with, or they
 * are damaged, out of order or followed by another trace. It returns NULL, *n 1, when there is no memory.
 * reader_open_stored() uses the first of the n indexes that fits, that is if its first and its last block are still in the file, and walks over
 * what follows. What is stored is believed and borrowed until reader_close(): it must come from the same program and from nobody else.
 */
struct reader_stored {
    const void *p;
    size_t n;
};
void *reader_store(struct reader *r, size_t *n);
int reader_open_stored(struct reader **out, const char *path, const struct reader_stored *stored,
                       size_t n);
/* Moves on to the next trace of the file (traces may be joined end to end). Returns 1; 0: there is none; -ENOMEM. */
int reader_next(struct reader *r);
/* Returns 1 when reader_next() would find none, because nothing follows this trace. */
int reader_is_last(const struct reader *r);
/* Returns one line, in static storage, on what an error of reader_open() means. */
const char *reader_strerror(int err);

/*
 * Leaves out the data blocks that hold no records of `types`, or none from lo to hi (CLOCK_MONOTONIC, ns), as if they were not in the
 * trace, but without counting them as lost. Records that name things (threads, groups) stay whatever their time, and so does what the trace
 * says of itself. Of the clock anchors, of which there are some each minute, those from lo to hi stay, and the next one on either side. All
 * this is decided by the hints, as long as none of them was found to be wrong; no block is read.
 */
void reader_range(struct reader *r, uint64_t lo, uint64_t hi, uint64_t types);
/* Record types that describe what other records refer to; they are needed for any part of a trace. */
#define READER_ALWAYS                                                                              \
    (1ull << TRACE_thread | 1ull << TRACE_process_group | 1ull << TRACE_module_unload |            \
     1ull << TRACE_children)

/* Sets *first and *end (exclusive) to the blocks that matter for the time from lo to hi, out of those that hold nothing but clock anchors:
 * the blocks within that time, and those next to it. */
void reader_anchors(const struct reader *r, uint64_t lo, uint64_t hi, size_t *first, size_t *end);
int reader_has_anchors_alone(const struct reader *r, size_t i);

/* As reader_range(), but when the rest may be asked for later: reader_check() no longer reads data blocks that hold no records of `types`,
 * but they still count. */
void reader_want(struct reader *r, uint64_t types);

/* Returns whether the block may hold records of `types`, as far as its hint can be believed, or it was read. */
int reader_may_hold(const struct reader *r, size_t i, uint64_t types);

size_t reader_blocks(const struct reader *r);
const struct reader_block *reader_block(const struct reader *r, size_t i);
/* Returns the -errno of a read that failed (whatever it would have given counts as damaged), 0 when none did. */
int reader_error(const struct reader *r);
/* Returns the number of blocks that are missing by their numbers; *tail: bytes of a last block that is cut off. Reads nothing. */
uint64_t reader_gaps(const struct reader *r, uint64_t *tail);
uint64_t reader_size(const struct reader *r);      /* bytes of the trace */
uint64_t reader_end(const struct reader *r);       /* the offset in the file at which it ends */
uint64_t reader_file_size(const struct reader *r); /* bytes of the whole file */

/* Decompresses block i and checks it. Returns 0; -EBADMSG: it is damaged (and counted); -ENOTSUP: this reader cannot read it (also
 * counted); -ENOMEM. */
int reader_load(struct reader *r, size_t i, struct reader_data *d);
void reader_data_free(struct reader_data *d);
/* For a caller that finds the rows of block i to be invalid: counts the block as damaged. */
void reader_damaged(struct reader *r, size_t i);

/*
 * For a caller that has read the first n blocks before and found nothing wrong with them: they count as read, and lost[] is what they said
 * was lost. Call it before any block but the first is loaded; n 0 takes it back. Compare reader_digest() to find out whether the blocks are
 * still the same: it is a digest of their places, lengths and hints.
 */
void reader_known(struct reader *r, size_t n, const uint64_t lost[TRACE_NLOST]);
uint64_t reader_digest(const struct reader *r, size_t n);
/* Returns a hash of the trace's first block, which tells a trace that has lost its beginning, and so does not say which process it is of, from
 * others. It stays the same when the trace grows, and whichever blocks reader_range() leaves. */
uint64_t reader_mark(struct reader *r);

/* Reads each block once (except those excluded by reader_want()), so that nothing depends on hints any more. Returns 0 or -ENOMEM. */
int reader_check(struct reader *r);
/* Returns 1 when n more items may be made from this trace, and counts them. */
int reader_allow(struct reader *r, uint64_t n);

/* Sets *out to what was lost. Loads the blocks that nobody has read yet. Returns 0 or -ENOMEM. */
int reader_loss(struct reader *r, struct reader_loss *out);

/* Totals from the headers of the blocks read so far; complete after reader_loss(). */
struct reader_totals {
    uint64_t records;
    uint64_t first_ts, last_ts; /* 0, 0: no times */
    uint64_t lost[TRACE_NLOST]; /* what the writer could not record, by reason */
};
void reader_totals(const struct reader *r, struct reader_totals *out);

#endif
