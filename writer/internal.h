/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the writer's inside, shared by writer.c (life), drain.c (rings to blocks) and
 * finish.c (the same for a dead process). Nobody else includes it.
 *
 * Exactly once. A group is what one flush writes: a META, a DICT and a DATA block, those that are not empty. Before it is written, each ring gets
 * `next`, the tail it will have, and `next_at`, the length of the file that makes it so. When all bytes are in the file, live->trace_bytes moves to
 * that length: this one store commits the group and all rings. Then the tails follow. A finisher cuts the file to trace_bytes and starts each ring
 * at `next` if next_at has been reached, else at its tail; so no record is lost and none comes twice, wherever the process was killed.
 */
#ifndef PROBING_WRITER_INTERNAL_H
#define PROBING_WRITER_INTERNAL_H

#include "encode.h"
#include "file.h"
#include "writer.h"

#define BLOCK_LARGE  (64u << 10) /* raw bytes: a block that long is written out */
#define BLOCK_OLD_NS 10000000000ull
#define DEFER_DRAINS 20 /* so many drains a record waits for the definition of its key */

struct writer {
    struct live *live;
    struct tracefile file;
    char live_path[4096];
    int status; /* sticky: the first failed write */
    int leave;  /* writer_leave_live */
    int dead;   /* finishing a dead process: its rings are read to their ends */
    uint32_t seq;
    uint32_t block_epoch;  /* of the records in the blocks under construction */
    uint32_t bound;        /* entries of an epoch: then the next one begins */
    struct dicts now, old; /* old: the epoch before, for records that still name its keys */
    struct encoder enc;
    uint64_t oldest;    /* CLOCK_MONOTONIC when the first record came into the pending blocks, 0 */
    uint64_t recovered; /* records taken from rings */
    uint64_t last_ts;   /* latest time in the file */
    uint64_t lost_written[TRACE_NLOST]; /* what the blocks in the file say, added up */
    uint64_t carried; /* bytes that this segment began with: dictionaries of the one before */
    uint64_t began;   /* CLOCK_MONOTONIC when it did */
    struct ring *own; /* for writer_emit() */
    ZSTD_CCtx *zstd;
    struct buffer out; /* a compressed group */
    struct writer_reading {
        uint64_t pos;     /* read up to here, the tail follows at the next flush */
        uint64_t settled; /* the head when this drain began */
        uint8_t waited;   /* drains that its next record has been waiting */
    } at[];               /* per ring */
};

/* drain.c */
/* Reads all rings into the blocks until nothing more comes; flushes what grows large. `last`: what
 * cannot be resolved now never will. 0 or the sticky status. */
int writer_read_rings(struct writer *w, int last);
/* Writes the pending blocks as one group and gives ring space back. 0 or the sticky status. */
int writer_flush(struct writer *w);
/* Encodes one record into the pending blocks, using up v: -ENOENT when it names an unknown key. */
int writer_encode(struct writer *w, const struct trace_record *rec, struct writer_value *v);
#define WRITER_ENCODE(w, name, ...)                                                                \
    writer_encode(w, trace_record_by_id(TRACE_##name),                                             \
                  (struct writer_value *)&(struct record_##name){__VA_ARGS__})

/* writer.c */
/* Allocates a writer without files. NULL when out of memory. */
struct writer *writer_alloc(unsigned nrings);
void writer_free(struct writer *w);
/* The schema record that opens every trace. */
int writer_put_schema(struct writer *w);
/* The last block, with `end` and the final loss counters, then the seek table. After a failed write, one attempt. */
int writer_end(struct writer *w, const char *reason, int signal);

#endif
