/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.h - the frames of a trace file: block header, hint frame, seek table. Bytes only, no I/O.
 *
 * A trace is a series of pairs
 *
 *     skippable hint frame   (68 bytes: where, when, how much; own CRC)
 *     zstd frame             (content size and checksum on) holding one block:
 *         block header       (TRACE_BLOCK_HEADER bytes)
 *         rows               (varint type, varint length, fields) x count
 *
 * and, when it was closed cleanly, a skippable frame with the standard zstd seek table.
 * FORMAT.md is the specification; all integers are little-endian.
 *
 *     header  0 magic[8]  8 version u16  10 header_len u16  12 kind u8  13 encoding u8  14 0 u16
 *            16 epoch u32  20 seq u32  24 count u32  28 body_len u32
 *            32 first_ts u64  40 last_ts u64  48 types u64  56 lost[8] u64
 *     hint    0 0x184D2A5D u32  4 60 u32  8 'PRBh' u32  12 version u16  14 kind u8  15 0 u8
 *            16 seq u32  20 epoch u32  24 count u32  28 compressed u32  32 raw u32  36 0 u32
 *            40 first_ts u64  48 last_ts u64  56 types u64  64 crc32 u32 (of bytes 8..63)
 *
 * A reader accepts any header_len >= 120 and skips what it does not know; it refuses a version
 * above its own. Pure functions: any thread, any signal context.
 */
#ifndef PROBING_TRACES_BLOCK_H
#define PROBING_TRACES_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "records.h"

#define TRACE_BLOCK_MAGIC   "\x89PRB\r\n\x1a\n" /* catches 7-bit and text-mode mangling */
#define TRACE_VERSION       1
#define TRACE_BLOCK_HEADER  120
#define TRACE_HINT_MAGIC    0x184D2A5Du /* a zstd skippable frame */
#define TRACE_HINT_SIZE     68
#define TRACE_BLOCK_MAX     (4u << 20) /* largest uncompressed size of a block, header and rows */
#define TRACE_ENCODING_ROWS 1

struct trace_block_header {
    uint16_t version;
    uint16_t header_len;
    uint8_t kind;               /* enum trace_kind of its records */
    uint8_t encoding;           /* TRACE_ENCODING_ROWS */
    uint32_t epoch;             /* dictionary ids are valid within one epoch */
    uint32_t seq;               /* 0, 1, 2 ... in the file, over all kinds and epochs */
    uint32_t count;             /* records */
    uint32_t body_len;          /* bytes of rows after the header */
    uint64_t first_ts;          /* base of T and TUS differences; earliest time in the block */
    uint64_t last_ts;           /* latest time in the block; both 0 when it holds no times */
    uint64_t types;             /* bit i: a record with id i is in it */
    uint64_t lost[TRACE_NLOST]; /* records lost since the previous block, by reason */
};

struct trace_hint {
    uint8_t kind;
    uint32_t seq, epoch, count;
    uint32_t compressed; /* size of the zstd frame that follows */
    uint32_t raw;        /* its content size */
    uint64_t first_ts, last_ts, types;
};

/* Writes a block header of TRACE_BLOCK_HEADER bytes; fills in version and header_len itself. */
void trace_block_header_put(uint8_t *p, const struct trace_block_header *h);
/* Reads a header from n bytes. Returns 0; -EBADMSG when they are not a block or inconsistent
 * (header_len + body_len must be n); -EPROTONOSUPPORT when the version is newer than this reader. */
int trace_block_header_get(const uint8_t *p, size_t n, struct trace_block_header *h);
/* Makes the hint for the block with this header; the caller sets the compressed size. */
static inline struct trace_hint trace_hint_of(const struct trace_block_header *h) {
    return (struct trace_hint){.kind = h->kind,
                               .seq = h->seq,
                               .epoch = h->epoch,
                               .count = h->count,
                               .raw = TRACE_BLOCK_HEADER + h->body_len,
                               .first_ts = h->first_ts,
                               .last_ts = h->last_ts,
                               .types = h->types};
}
/* Writes a hint frame of TRACE_HINT_SIZE bytes, including the skippable frame header and the CRC. */
void trace_hint_put(uint8_t *p, const struct trace_hint *h);
/* Reads a hint frame from n bytes. Returns 0; -EAGAIN when there are too few bytes; -EBADMSG when it is no hint or its CRC is wrong. */
int trace_hint_get(const uint8_t *p, size_t n, struct trace_hint *h);
/* CRC-32 (IEEE 802.3, reflected, as in zlib) of n bytes. */
uint32_t trace_crc32(const void *p, size_t n);

/* The three parts of the seek table in the zstd seekable format: a head of 8 bytes, an entry of 8 bytes for every
 * frame before it (hint frames included), and a foot of 9 bytes. */
#define TRACE_SEEK_MAGIC 0x184D2A5Eu /* a zstd skippable frame, too */
#define TRACE_SEEK_MOST  0x8000000u  /* most frames that the format allows */
#define TRACE_SEEK_FOOT  9
void trace_seek_head(uint8_t *p, uint64_t frames);
void trace_seek_entry(uint8_t *p, uint32_t compressed, uint32_t raw);
void trace_seek_foot(uint8_t *p, uint64_t frames);

static inline uint32_t trace_get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
/* Whether a frame that begins with this magic number is a skippable frame of zstd. */
static inline int trace_is_skippable(uint32_t magic) {
    return (magic & 0xfffffff0u) == 0x184D2A50u;
}

/* ---- rows ---- */

/* One field of a decoded row. STR: u is the string id. TXT and BIN: n bytes at p. REFS and US: p points at n varint
 * differences, still encoded; walk them with trace_list_next(). All other types: the value is u (S: i). */
struct trace_value {
    union {
        uint64_t u;
        int64_t i;
        double f;
    };
    const uint8_t *p;
    uint32_t n;
};

/* Decoding state of one block: the previous values that differences refer to. trace_rows_start() makes it ready for
 * use. Its pointers are borrowed: they are valid as long as the block's bytes are. */
struct trace_rows {
    const uint8_t *p, *end;
    uint64_t first_ts;
    uint64_t begun; /* bit i: type i had a row; prev[i] is not set before that */
    uint64_t prev[TRACE_MAX_ID + 1][TRACE_MAX_FIELDS];
};

/* Starts reading the rows of a block whose header was read by trace_block_header_get(). */
void trace_rows_start(struct trace_rows *r, const struct trace_block_header *h,
                      const uint8_t *block);
/*
 * Reads the next row. `want` is a mask of the record ids to decode; other known types are skipped by their length
 * (differences are per type, so skipping a whole type is safe; never skip only some rows of a type). v has room for
 * TRACE_MAX_FIELDS values; fields that the row lacks (an older writer) become 0 or empty. Returns the record id, 0 at
 * the end, or -EBADMSG when the bytes make no sense: nothing after them can be trusted in this block. Unknown types
 * and trailing fields are skipped.
 */
int trace_rows_next(struct trace_rows *r, uint64_t want, struct trace_value v[TRACE_MAX_FIELDS]);

/*
 * Decodes many rows of type sample at once, into one array per field. This takes a third of the time of trace_rows_next(), since the types
 * of the fields are known beforehand. Returns the number of rows, at most `max`; fewer than `max` means the end of the block. Sets *damaged
 * to 1 where the bytes make no sense; the rows before are returned. Do not also read samples of the same block by trace_rows_next().
 */
struct trace_samples {
    uint64_t *ts, *tid, *stack, *pc, *cpu_us, *count, *flags;
};
size_t trace_samples_next(struct trace_rows *r, const struct trace_samples *to, size_t max,
                          int *damaged);

/* Reads the next element of a REFS or US value; *prev must be 0 at first. Returns 1 with the element in *out, or 0 at the end. */
static inline int trace_list_next(struct trace_value *v, uint64_t *prev, uint64_t *out);

#include "varint.h"
static inline int trace_list_next(struct trace_value *v, uint64_t *prev, uint64_t *out) {
    uint64_t d = 0;
    if (v->n == 0)
        return 0;
    v->n--;
    v->p = varint_get(v->p, v->p + VARINT_MAX, &d); /* checked when the row was read */
    *prev += (uint64_t)unzigzag(d);
    *out = *prev;
    return 1;
}

#endif
