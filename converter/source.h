/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - reads bytes by offset, from a file, from stdin, from memory, or from a remote place named by a URL ("s3://bucket/key").
 *
 *     struct source s;
 *     if (source_open(&s, "trace.zst") == 0) {           // "-": stdin, spooled to an unlinked file
 *         const uint8_t *p = source_view(&s, off, 68, &got); // got <= 68: fewer at the end
 *         source_close(&s);
 *     }
 *
 * The size is what the file held when it was opened: a trace that is still growing reads as it was then. Reads use pread, not mmap, so that
 * a file that is cut short meanwhile gives an error and never a SIGBUS. One thread at a time.
 */
#ifndef PROBING_CONVERTER_SOURCE_H
#define PROBING_CONVERTER_SOURCE_H

#include <stddef.h>
#include <stdint.h>

/* Functions that read remote files, provided by the Python package, which uses fsspec. Both return -errno on failure. They are called by
 * whichever thread reads. */
struct source_remote {
    int64_t (*size)(const char *url);
    /* returns n, the number of bytes read */
    int64_t (*read)(const char *url, uint64_t off, void *to, size_t n);
};

/* Call once, before the first remote file is opened; *remote must stay valid. */
void source_set_remote(const struct source_remote *remote);
/* Returns 1 when the name is a URL and functions to read it were set. */
int source_is_remote(const char *path);

/* Called while a pipe is read, and while a damaged file is searched, by whichever thread reads: a nonzero result ends that with -EINTR. NULL: nothing does. */
extern int (*source_stopped)(void);
/* Called once for each pipe that has brought nothing for two seconds: the wait for it may never end. May be NULL. */
extern void (*source_waits)(const char *path);

struct source {
    int fd;             /* -1: memory, or remote */
    char *url;          /* of a remote file; else NULL */
    int error;          /* -errno of a failed read; all later bytes are missing */
    const uint8_t *mem; /* borrowed */
    uint64_t size;
    int walks;    /* 1: it is read from hint to hint, and what lies between is mostly not needed */
    uint8_t *buf; /* the window that was read last */
    uint64_t buf_off;
    size_t buf_len, buf_cap;
};

/* Opens a regular file; or a pipe, or "-" (stdin, which may be a socket), by copying it to an unlinked file in $TMPDIR or /tmp, once in a process:
 * the copy is kept for those who open it again. If no trace begins in the first 64 MiB of a pipe, only these are copied: the pipe may have no end.
 * Returns 0 or -errno: -EISDIR for a directory that may be read, -ENOTBLK for a device, which may have no end either (except /dev/null, which is empty). */
int source_open(struct source *s, const char *path);
/* Borrows n bytes, which must stay until source_close(). */
void source_memory(struct source *s, const void *p, size_t n);
/* Returns a pointer to up to `want` bytes at off, valid until the next call, and sets *got to how many there are (fewer only at the end or
 * after a read error). Returns NULL when there are none. */
const uint8_t *source_view(struct source *s, uint64_t off, size_t want, size_t *got);
/* Returns the first offset from `off` on that is not in a hole of the file, or the file's size: holes read as zeros, and may be of any length. */
uint64_t source_data(const struct source *s, uint64_t off);
void source_close(struct source *s);

/* Writes to `buf` (RUN_ID bytes) which recording the file, or pipe, is (traces/run.h), and sets its size. Returns 0, or -errno: not known,
 * or the file is remote. */
int source_recording(const char *path, char *buf, uint64_t *size);

#endif
