/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - the trace file: appending whole groups of blocks, cutting back, the seek table, and single blocks in it.
 *
 *     tracefile_create(&f, path)  or  tracefile_open(&f, path, owner)
 *     tracefile_append(&f, bytes, n)       // all or nothing: f.len grows only when all is in the file
 *     tracefile_seek_table(&f)
 *     tracefile_close(&f)
 *
 * It lives inside somebody else's program, which may close descriptors that it does not know and be given the same number for a
 * file of its own. So before every use the descriptor is compared with the file's identity, and opened anew by its path when it is
 * not ours any more.
 * A file without a name left counts as gone (-ENOENT): nobody would ever see what is written to it.
 * One with `none` set is no file: what is appended is counted and thrown away.
 *
 * The caller has SIGXFSZ masked or ignored. One thread at a time. Functions return 0 or -errno.
 */
#ifndef PROBING_WRITER_FILE_H
#define PROBING_WRITER_FILE_H

#include <sys/types.h>
#include <zstd.h>

#include "../traces/block.h"

struct tracefile {
    char path[4096];
    int fd;
    int none; /* there is no file; fd is -1 */
    dev_t dev;
    ino_t ino;
    uint64_t len; /* whole groups end here */
};

/* Creates it: O_EXCL, no symlink, mode 0600. -EEXIST when there is one. */
int tracefile_create(struct tracefile *f, const char *path);
/* Opens an existing one that must be a regular file of `owner`; len is its size. */
int tracefile_open(struct tracefile *f, const char *path, uid_t owner);
/* Appends n bytes at len. On an error the file is cut back to len. */
int tracefile_append(struct tracefile *f, const void *bytes, size_t n);
/* Reads exactly n bytes at off: 0, -ENODATA when the file is shorter, -errno. */
int tracefile_read(struct tracefile *f, uint64_t off, void *buf, size_t n);
/* Cuts the file to len bytes. */
int tracefile_cut(struct tracefile *f, uint64_t len);
/* Appends the standard zstd seek table, made by walking the hint frames: needs no memory that grows
 * with the trace. Leaves the file without one on an error. */
int tracefile_seek_table(struct tracefile *f);
/* Closes the descriptor if it is still ours. Async-signal-safe. */
void tracefile_close(struct tracefile *f);

/* ---- blocks as frames: a hint, then the block compressed (traces/FORMAT.md); -EBADMSG: what lies there is no good one ---- */

/* Memory that grows; zeros at first, then to be given to free(). */
struct buffer {
    uint8_t *bytes;
    size_t cap;
};

/* Appends the block of n raw bytes to what lies in out up to *len. hint: all but the compressed size. */
int frame_put(ZSTD_CCtx *zstd, const uint8_t *raw, size_t n, struct trace_hint *hint,
              struct buffer *out, size_t *len);
/* The hint at `pos`, of a block that ends before `limit`. *next: where that is. */
int frame_hint(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
               uint64_t *next);
/* The same, or a skippable frame of another kind, a former seek table: then hint->compressed is 0. */
int frame_at(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
             uint64_t *next);
/* The block of that hint into raw, decompressed, and its header. packed: for what lies in the file. */
int frame_get(struct tracefile *f, uint64_t pos, const struct trace_hint *hint, ZSTD_DCtx *zstd,
              struct buffer *packed, struct buffer *raw, struct trace_block_header *h);

#endif
