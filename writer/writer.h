/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - moves records from rings to a trace file. Knows records.def, knows no Python.
 *
 *     struct writer *w;
 *     writer_open(&w, &(struct writer_options){.trace_path = "/x/trace.zst"});
 *     WRITER_EMIT(w, process, .ts = sys_now(), ...);      // block 0
 *     struct ring *r = live_ring_get(writer_live(w), tid);  // producers: ring.h
 *     every 50-500 ms, from one thread:  writer_drain(w, 0);
 *     writer_close(w, "exit");
 *
 * writer_drain() moves committed records from the rings into the current block (dictionary keys become ids; strings are interned; a record that
 * names a key not seen yet waits for the next drain). It writes the block as one zstd frame when it is large (64 KiB) or old (10 s), when a ring is
 * half full, or on request (WRITER_FLUSH). Ring space is released only when the block that holds the records is in the file: a killed process loses
 * nothing that was committed. Dictionary records go into a block of their own in front of the data that needs them.
 *
 * When the dictionaries outgrow their bound (4 MiB), a new epoch begins: ids start again, live->epoch is incremented,
 * producers that mix it into their keys define everything anew.
 *
 * After a write error (disk full, vanished directory) the status is sticky: the file is truncated to its last whole
 * block, nothing more is written, and the rings are still emptied, with their records counted as lost.
 *
 * One thread at a time; never called from a signal handler. Allocates with malloc. Nothing here exits, aborts or prints; functions return 0 or -errno.
 */
#ifndef PROBING_WRITER_WRITER_H
#define PROBING_WRITER_WRITER_H

#include "live.h"
#include "sys.h"

struct writer;

struct writer_options {
    /* Absolute; created with O_EXCL|O_NOFOLLOW, mode 0600. NULL: no trace, only a live file for requests to its mailbox; its trace_path is "" then. */
    const char *trace_path;
    const char *run_dir, *xdg; /* preferred places of the live file (live_place()), or NULL */
    unsigned nrings;           /* 0: LIVE_NRINGS */
    uint64_t ring_size;        /* 0: LIVE_RING */
    uint64_t large_ring;       /* size in bytes of each large ring, a power of two; 0: none */
};

/* Creates the live file and the trace file; the first block (schema record) is pending. -EEXIST: the trace file exists already. */
int writer_open(struct writer **out, const struct writer_options *opt);
struct live *writer_live(struct writer *w); /* the writer's, as is the path: until writer_close() */
const char *writer_live_path(const struct writer *w);

/* Writes a record, from the drain's thread only: through the writer's own ring, or, if too long for that, straight into the block. */
int writer_emit(struct writer *w, unsigned type, const struct writer_value *v);
/* Writes a record into the ring of the calling thread. Returns 0, or -ENOSPC, which the ring counts. Async-signal-safe. */
int writer_put(struct ring *r, unsigned type, const struct writer_value *v);

/*
 * Fields are given by name, in any order; omitted ones are 0 or empty. Numbers are given as they are, text and lists as values:
 *
 *     WRITER_EMIT(w, config, .ts = sys_now(), .key = value_text(key), .value = value_text(value));
 */
#define WRITER_EMIT(w, name, ...)   writer_emit(w, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))
#define WRITER_PUT(ring, name, ...) writer_put(ring, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))
#define WRITER_VALUES(name, ...)                                                                   \
    ((const struct writer_value *)&(const struct record_##name){__VA_ARGS__})

/* struct record_config and the like: one struct writer_value per field, named after it; for a number, the name is that of the number in it. */
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

enum { WRITER_FLUSH = 1 /* write the blocks out even if they are small */ };
/* Returns 0, or the sticky status: the -errno of the first failed write, or -ENOMEM. */
int writer_drain(struct writer *w, int flags);
/*
 * Continues in a new file. The current one is closed (end "rotated", seek table) and renamed to `old_name`, on the same file system; the new one takes its
 * name. The new file is complete by itself: it has the dictionaries in use. The caller must again emit what describes the process (process, clock, config,
 * threads). Increments live->segment. Returns 0 or -errno with nothing changed, except that after a disk error an end "rotated" and a seek table may be in the
 * middle of the trace. -EEXIST: old_name exists.
 */
int writer_next_segment(struct writer *w, const char *old_name);
/* Bytes written into the current segment, without those it began with; its start time, in ns of CLOCK_MONOTONIC. */
uint64_t writer_segment_bytes(const struct writer *w);
uint64_t writer_segment_began(const struct writer *w);
/* Bounds the dictionaries: a new epoch begins when they have this many entries together; at most DICTS_BOUND. */
void writer_bound(struct writer *w, uint64_t entries);
/* Lets producers go on for a while after writer_close(): the live file's memory stays (live_leave). */
void writer_leave_live(struct writer *w);
/* Drains what is left, writes the `end` record and the seek table, removes the live file, frees w. */
int writer_close(struct writer *w, const char *reason);
/* In a forked child: forgets the parent's writer. Changes neither file; closes the trace's
 * descriptor and leaks the heap (whose locks may have been held). Async-signal-safe. */
void writer_abandon(struct writer *w);

/* What writer_finish() did, for a summary line. */
struct writer_finished {
    uint64_t recovered, trace_bytes, last_ts; /* recovered: records moved from rings */
    char trace_path[4096];
};
/*
 * Completes the trace of a dead process from its live file: cuts off an incomplete tail, reads the dictionaries back, drains the rings, writes end
 * ("killed") and the seek table, and removes the live file. Returns 0 or -errno; -ESTALE: the file with the trace's name is another one; -EBUSY: the
 * process still runs (and is not the caller itself: the program that the caller ran before an exec may be finished). Holds a lock (flock) on the live
 * file meanwhile, so that two finishers do not collide (-EAGAIN). signal: the signal that killed the process, 0 = not known.
 */
int writer_finish(const char *live_path, const char *reason, int signal,
                  struct writer_finished *out);

#endif
