/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - the trace file: appends whole groups of blocks, truncates, writes the seek table, and reads single blocks.
 *
 *     tracefile_create(&f, path)  or  tracefile_open(&f, path, owner)
 *     tracefile_append(&f, bytes, n)       // all or nothing: f.len grows only when all is in the file
 *     tracefile_seek_table(&f)
 *     tracefile_close(&f)
 *
 * The code runs inside another program, which may close descriptors that it does not know, and then get the same number for a file of its own. So before every
 * use the descriptor is compared with the file's identity, and the file is opened again by its path when the descriptor is not ours any more. A file that has
 * no name left counts as gone (-ENOENT): nobody would ever see what is written to it. With `none` set there is no file: appended bytes are counted and thrown
 * away.
 *
 * The caller must block or ignore SIGXFSZ. One thread at a time. Functions return 0 or -errno.
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
    uint64_t len; /* length of the file up to the last whole group */
};

/* Creates the file: O_EXCL, no symlink, mode 0600. -EEXIST when there is one already. */
int tracefile_create(struct tracefile *f, const char *path);
/* Opens an existing file, which must be a regular file of `owner`; len becomes its size. */
int tracefile_open(struct tracefile *f, const char *path, uid_t owner);
/* Appends n bytes at len. On an error the file is truncated back to len. */
int tracefile_append(struct tracefile *f, const void *bytes, size_t n);
/* Reads exactly n bytes at off. Returns 0, -ENODATA when the file is shorter, or -errno. */
int tracefile_read(struct tracefile *f, uint64_t off, void *buf, size_t n);
/* Truncates the file to len bytes. */
int tracefile_cut(struct tracefile *f, uint64_t len);
/* Appends the standard zstd seek table. It is made by walking the hint frames, so it needs no
 * memory that grows with the trace. On an error the file has none. */
int tracefile_seek_table(struct tracefile *f);
/* Closes the descriptor if it is still ours. Async-signal-safe. */
void tracefile_close(struct tracefile *f);

/* ---- blocks as frames: a hint, then the compressed block (traces/FORMAT.md); -EBADMSG: there is no good frame at this place ---- */

/* A growing buffer. {0} at first; the caller frees `bytes` in the end. */
struct buffer {
    uint8_t *bytes;
    size_t cap;
};

/* Compresses the block of n raw bytes and appends its frames to out at *len. The hint must be complete except for the compressed size, which is set here. */
int frame_put(ZSTD_CCtx *zstd, const uint8_t *raw, size_t n, struct trace_hint *hint,
              struct buffer *out, size_t *len);
/* Reads the hint at `pos` of a block that must end before `limit`. *next: position behind that block. */
int frame_hint(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
               uint64_t *next);
/* The same, but also accepts a skippable frame of another kind, such as an earlier seek table; hint->compressed is 0 then. */
int frame_at(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
             uint64_t *next);
/* Reads and decompresses the block of that hint into raw, and its header into h. packed: buffer for the compressed bytes. */
int frame_get(struct tracefile *f, uint64_t pos, const struct trace_hint *hint, ZSTD_DCtx *zstd,
              struct buffer *packed, struct buffer *raw, struct trace_block_header *h);

#endif
