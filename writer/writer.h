/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - from rings to a trace file. Knows records.def, knows no Python.
 *
 *     struct writer *w;
 *     writer_open(&w, &(struct writer_options){.trace_path = "/x/trace.zst"});
 *     WRITER_EMIT(w, process, .ts = sys_now(), ...);      // block 0
 *     struct ring *r = live_ring_get(writer_live(w), tid);  // producers: ring.h
 *     every 50-500 ms, from one thread:  writer_drain(w, 0);
 *     writer_close(w, "exit");
 *
 * writer_drain() moves committed records from the rings into the current block (dictionary keys become ids; strings are interned; a record that
 * names a key not seen yet waits for the next drain), and writes the block as one zstd frame when it is large (64 KiB), old (10 s), a ring is half
 * full, or when it is called so. Ring space is given back only when the block that holds the records is in the file: a killed process loses nothing
 * that was committed. Dictionary records go into a block of their own in front of the data that needs them.
 *
 * When the dictionaries outgrow their bound (4 MiB), a new epoch begins: ids start again, live->epoch is incremented,
 * producers that mix it into their keys define everything anew.
 *
 * After a write error (disk full, vanished directory) the status is sticky: the file is cut back to its last whole
 * block, nothing more is written, rings go on being emptied and the records counted as lost.
 *
 * One thread at a time; never called from a signal handler. Allocates with malloc. Nothing here
 * exits, aborts or prints; functions return 0 or -errno.
 */
#ifndef PROBING_WRITER_WRITER_H
#define PROBING_WRITER_WRITER_H

#include "live.h"
#include "sys.h"

struct writer;

struct writer_options {
    /* Absolute; created with O_EXCL|O_NOFOLLOW, mode 0600. NULL: no trace, only a live file, to be
     * asked through its mailbox; its trace_path is then "". */
    const char *trace_path;
    const char *run_dir; /* where the live file goes if it can (live_place()); NULL: not said */
    unsigned nrings;     /* 0: LIVE_NRINGS */
    uint64_t ring_size;  /* 0: LIVE_RING */
    uint64_t large_ring; /* bytes of each of the large ones, a power of two; 0: there are none */
};

/* Creates the live file and the trace file; the first block (schema record) is pending.
 * -EEXIST: the trace file is there already. */
int writer_open(struct writer **out, const struct writer_options *opt);
struct live *writer_live(struct writer *w); /* the writer's, as its path: until writer_close() */
const char *writer_live_path(const struct writer *w);

/* A record straight into the current block, without a ring: from the drain's own thread only. */
int writer_emit(struct writer *w, unsigned type, const struct writer_value *v);
/* The same into the ring of the calling thread. 0; -ENOSPC, counted in the ring. Async-signal-safe. */
int writer_put(struct ring *r, unsigned type, const struct writer_value *v);

/*
 * Fields by name, in any order; what is left out is 0 or empty. Numbers as they are, text and lists as values:
 *
 *     WRITER_EMIT(w, config, .ts = sys_now(), .key = value_text(key), .value = value_text(value));
 */
#define WRITER_EMIT(w, name, ...)   writer_emit(w, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))
#define WRITER_PUT(ring, name, ...) writer_put(ring, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))
#define WRITER_VALUES(name, ...)                                                                   \
    ((const struct writer_value *)&(const struct record_##name){__VA_ARGS__})

/* struct record_config and the like: one struct writer_value after the other, those of numbers named by the number in them. */
#define WRITER_NUMBER(field, type)                                                                 \
    union {                                                                                        \
        type field;                                                                                \
        struct writer_value field##_value;                                                         \
    };
#define WRITER_FIELD_U(field)              WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_D(field)              WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_T(field)              WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_TUS(field)            WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_ID(field)             WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_KEY(field)            WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_REF(field)            WRITER_NUMBER(field, uint64_t)
#define WRITER_FIELD_S(field)              WRITER_NUMBER(field, int64_t)
#define WRITER_FIELD_F(field)              WRITER_NUMBER(field, double)
#define WRITER_FIELD_STR(field)            struct writer_value field;
#define WRITER_FIELD_TXT(field)            struct writer_value field;
#define WRITER_FIELD_BIN(field)            struct writer_value field;
#define WRITER_FIELD_REFS(field)           struct writer_value field;
#define WRITER_FIELD_US(field)             struct writer_value field;
#define RECORD(name, id, kind, doc)        struct record_##name {
#define FIELD(name, field, type, ref, doc) WRITER_FIELD_##type(field)
#define END(name)                                                                                  \
    }                                                                                              \
    ;
#include "../traces/records.def"

enum { WRITER_FLUSH = 1 /* write the block out even if small */ };
/* Returns 0, or the sticky status: the -errno of the first failed write. */
int writer_drain(struct writer *w, int flags);
/*
 * Goes on in a new file. The one written so far is closed (end "rotated", seek table) and from now on named `old_name`, on
 * the same file system; a new one has its name. It stands alone: dictionaries in use are in it. The caller
 * emits again what describes the process (process, clock, config, threads); live->segment counts. 0 or -errno: then nothing
 * has changed, except that after a disk's error an end "rotated" and a seek table may stand in the middle of the trace.
 * -EEXIST: old_name is there.
 */
int writer_next_segment(struct writer *w, const char *old_name);
/* Bytes written into the present segment, without what it began with; when it began, ns of CLOCK_MONOTONIC. */
uint64_t writer_segment_bytes(const struct writer *w);
uint64_t writer_segment_began(const struct writer *w);
/* Bounds the dictionaries: a new epoch begins at so many entries of all together; at most DICTS_BOUND. */
void writer_bound(struct writer *w, uint64_t entries);
/* A producer may go on for a while after writer_close: the live file's memory stays (live_leave). */
void writer_leave_live(struct writer *w);
/* Drains what is left, writes the `end` record and the seek table, removes the live file, frees w. */
int writer_close(struct writer *w, const char *reason);
/* In a forked child: forget the parent's writer. Touches neither file; unmaps, closes, leaks the
 * heap (whose locks may have been held). Async-signal-safe. */
void writer_abandon(struct writer *w);

/* What writer_finish did, for a summary line. */
struct writer_finished {
    char trace_path[4096];
    uint32_t pid;
    int32_t rank;
    uint64_t records, recovered, trace_bytes, samples; /* recovered: records moved from rings */
    uint64_t start_mono, last_ts;
    uint64_t lost[TRACE_NLOST];
};
/*
 * Completes the trace of a dead process from its live file: cuts a torn tail, reads the dictionaries back, drains the rings, writes end ("killed")
 * and the seek table, removes the live file. 0 or -errno; -ESTALE: what has the trace's name is not its trace; -EBUSY: its process still runs (and
 * is not the caller itself: the program that it ran before exec may be finished). The live file is locked (flock) meanwhile: two finishers do not
 * collide (-EAGAIN). signal: what killed it, 0 = not known.
 */
int writer_finish(const char *live_path, const char *reason, int signal,
                  struct writer_finished *out);

#endif
