/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - a lock-free ring of raw records in the live file: one thread (and the signal handlers that interrupt it) writes, the drain reads.
 *
 * Producer:
 *     uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
 *     if (f) { f[TRACE_sample_ts] = now; ...; ring_commit(f); }      // else: dropped and counted
 *
 * or, with variable fields (STR, TXT, BIN, REFS, US), ask for their bytes in `extra` and fill them with ring_put_bytes().
 *
 * A raw record, 8-byte aligned, never split at the end of the ring (a pad record fills the gap):
 *
 *     63          48 47          32 31 30 29                     0
 *     +-------------+--------------+--+--+-----------------------+
 *     | nfields u16 |  type u16    |B |O | length u30, bytes,% 8 |   B = busy: not committed yet
 *     +-------------+--------------+--+--+-----------------------+   O = open: valid although busy
 *     | field 0 | field 1 | ... one u64 each; a variable field holds (offset << 32 | bytes), offset
 *     | from the record's start ...
 *     | the bytes of the variable fields, each rounded up to 8
 *
 * Values are absolute here (no differences). STR fields hold text, REF and KEY fields hold 64-bit keys, REFS fields hold lists of keys; the drain
 * turns them into ids. `head` and `tail` count bytes and never wrap. The reader clears what it has consumed, so that reserved space whose header was
 * never written reads as 0. The unfinished record of a dead producer is skipped, by its length or by its zeros, unless it is open.
 *
 * Signal safety: reserve and commit are async-signal-safe and may nest on one thread (a handler interrupting a reserve). They must not be called by
 * two threads at a time on one ring. Cost: well under 50 ns (make bench).
 */
#ifndef PROBING_WRITER_RING_H
#define PROBING_WRITER_RING_H

#include <stdint.h>
#include <string.h>

#define RING_BUSY (1u << 31)
#define RING_OPEN (1u << 30)
#define RING_LEN  (RING_OPEN - 1)
#define RING_PAD  0xffffu /* type of the record that fills the end of the ring */

/* ORPHAN: owner gone, still to be drained; LEFT: the same, but all its records are complete, so another thread may go on in it */
enum ring_state { RING_FREE, RING_OWNED, RING_ORPHAN, RING_LEFT };

/* Lies in the live file: 128 bytes, then `size` bytes of data. All fields are accessed with __atomic. */
struct ring {
    uint32_t state;   /* enum ring_state */
    uint32_t owner;   /* tid of the producer */
    uint64_t size;    /* bytes of data, a power of two */
    uint64_t dropped; /* number of records refused for lack of space, in total */
    uint64_t counted; /* consumer: how many of `dropped` live->lost includes already */
    uint64_t next;    /* consumer: the tail once the trace file is next_at bytes long; commits */
    uint64_t next_at; /* several rings at once, for whoever reads a dead process's rings */
    uint64_t pad0[2];
    uint64_t head; /* producer: bytes reserved so far */
    uint64_t pad1[3];
    uint64_t tail; /* consumer: bytes released so far; all before is in the trace file */
    uint64_t pad2[3];
    uint8_t data[];
};

/* Prepares zeroed memory of sizeof(struct ring) + size bytes. size: a power of two >= 4096. */
void ring_init(struct ring *r, uint64_t size);

/* Reserves space for a record of `nfields` u64 fields and `extra` bytes of variable data (the sum of the fields'
 * bytes, each rounded up to 8). Returns the address of field 0, or NULL without space, counted in dropped. */
uint64_t *ring_reserve(struct ring *r, unsigned type, unsigned nfields, size_t extra);
/* Before the commit: releases what was reserved beyond `extra` bytes, which must never have been written to. Does
 * nothing if another record was reserved since. */
void ring_trim(struct ring *r, uint64_t *f, size_t extra);
/* Marks a record as valid at any time from now on, although it is not committed (a batch whose length is stored after
 * the data that it grows by): should the process die, the record is read as it is then. */
void ring_open(uint64_t *f);
/* Makes the record whose fields start at f visible to the reader. */
void ring_commit(uint64_t *f);
/* The value of a field: .u, .i or .f for numbers, .p and .n for bytes (TXT, BIN, STR) and lists (p points at uint64_t[n]). */
struct writer_value {
    union {
        uint64_t u;
        int64_t i;
        double f;
    };
    const void *p;
    size_t n;
};
static inline struct writer_value value_bytes(const void *p, size_t n) {
    return (struct writer_value){.p = p, .n = n};
}
static inline struct writer_value value_text(const char *s) {
    return value_bytes(s, strlen(s));
}

/* Fills variable field i with n bytes; a list has 8 bytes per element. `used` counts the extra bytes used so far (start at 0). */
void ring_put_bytes(uint64_t *f, unsigned nfields, unsigned i, const void *bytes, size_t n,
                    size_t *used);

/* Reader. A cursor has a position of its own, starting at the tail, so that records can be read before their space is released. ring_next()
 * returns the header of the next committed record, or NULL (empty, or the next one is busy). `dead`: nobody writes any more, so busy
 * records are skipped. Bounds are checked: a record with an impossible length ends the reading and sets *bad. */
struct ring_cursor {
    struct ring *ring;
    uint64_t pos;
    int dead, bad;
};
const uint64_t *ring_next(struct ring_cursor *c);
/* Steps the cursor back to before `rec` (the record that ring_next returned last). */
void ring_unread(struct ring_cursor *c, const uint64_t *rec);
/* Clears everything before the position `pos` and releases it to the producer. */
void ring_release(struct ring *r, uint64_t pos);
/* Returns the number of bytes reserved and not yet released. Any thread. */
uint64_t ring_used(const struct ring *r);

/* The first word of a committed record. */
#define RING_HEADER(nfields, type, len) ((uint64_t)(nfields) << 48 | (uint64_t)(type) << 32 | (len))
static inline unsigned ring_rec_type(const uint64_t *rec) {
    return (rec[0] >> 32) & 0xffff;
}
static inline unsigned ring_rec_nfields(const uint64_t *rec) {
    return rec[0] >> 48;
}
static inline uint32_t ring_rec_len(const uint64_t *rec) {
    return rec[0] & RING_LEN;
}

#endif
