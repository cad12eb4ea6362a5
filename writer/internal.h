/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the writer's internals, shared by writer.c (life cycle), drain.c (moves records from rings to blocks) and
 * finish.c (does the same for a dead process). Nobody else includes it.
 *
 * How each record is written exactly once: a group is what one flush writes, its META, DICT and DATA blocks that are not empty. Before the write, each
 * ring gets `next`, its future tail, and `next_at`, the length of the file at which that tail becomes valid. When all bytes are in the file,
 * live->trace_bytes is set to that length: this one store commits the group and all rings. Then the tails follow. A finisher truncates the file to
 * trace_bytes and starts each ring at `next` if next_at has been reached, else at its tail. So no record is lost or doubled, wherever the process was killed.
 */
#ifndef PROBING_WRITER_INTERNAL_H
#define PROBING_WRITER_INTERNAL_H

#include "encode.h"
#include "file.h"
#include "writer.h"

#define BLOCK_LARGE  (64u << 10) /* a block with this many uncompressed bytes is written out */
#define BLOCK_OLD_NS 10000000000ull
#define DEFER_DRAINS 20 /* number of drains that a record waits for the definition of its key */

struct writer {
    struct live *live;
    struct tracefile file;
    char live_path[4096];
    int status; /* sticky: -errno of the first failed write, or -ENOMEM */
    int leave;  /* set by writer_leave_live() */
    int dead;   /* finishing a dead process, whose rings are read to their ends */
    uint32_t seq;
    uint32_t block_epoch;  /* epoch of the records in the blocks under construction */
    uint32_t bound;        /* number of entries at which the next epoch begins */
    struct dicts now, old; /* old: the previous epoch, for records that still name its keys */
    struct encoder enc;
    uint64_t oldest;    /* CLOCK_MONOTONIC time of the first record in the pending blocks, or 0 */
    uint64_t recovered; /* records taken from rings */
    uint64_t last_ts;   /* latest time in the file */
    uint64_t lost_written[TRACE_NLOST]; /* sum of the losses in the file's blocks */
    uint64_t carried; /* bytes copied into this segment at its start: earlier dictionaries */
    uint64_t began;   /* CLOCK_MONOTONIC time at which this segment began */
    struct ring *own; /* for writer_emit() */
    ZSTD_CCtx *zstd;
    struct buffer out; /* buffer for a compressed group */
    struct writer_reading {
        uint64_t pos;     /* read up to here; the tail follows at the next flush */
        uint64_t settled; /* the ring's head when this drain began */
        uint8_t waited;   /* number of drains that its next record has been waiting for */
    } at[];               /* per ring */
};

/* drain.c */
/* Reads all rings into the blocks until nothing more comes; flushes blocks that grow large. `last`:
 * keys that are unknown now will never be defined. Returns 0 or the sticky status. */
int writer_read_rings(struct writer *w, int last);
/* Writes the pending blocks as one group and releases the rings' space. Returns 0 or the sticky status. */
int writer_flush(struct writer *w);
/* Encodes one record into the pending blocks and overwrites v. Returns -ENOENT when it names an unknown key. */
int writer_encode(struct writer *w, const struct trace_record *rec, struct writer_value *v);
#define WRITER_ENCODE(w, name, ...)                                                                \
    writer_encode(w, trace_record_by_id(TRACE_##name),                                             \
                  (struct writer_value *)&(struct record_##name){__VA_ARGS__})

/* writer.c */
/* Allocates a writer without files. Returns NULL without memory. */
struct writer *writer_alloc(unsigned nrings);
void writer_free(struct writer *w);
/* Encodes the schema record, which opens every trace. */
int writer_put_schema(struct writer *w);
/* Writes the last block, with `end` and the final loss counters, then the seek table. After a failed write it tries only once. */
int writer_end(struct writer *w, const char *reason, int signal);

#endif
