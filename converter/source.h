/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - bytes by offset, from a file, from stdin, from memory, or from wherever a name with a scheme ("s3://bucket/key") leads.
 *
 *     struct source s;
 *     if (source_open(&s, "trace.zst") == 0) {           // "-": stdin, spooled to an unlinked file
 *         const uint8_t *p = source_view(&s, off, 68, &got); // got <= 68: fewer at the end
 *         source_close(&s);
 *     }
 *
 * The size is what the file held when it was opened: a trace that still grows reads as it was then.
 * pread, not mmap: a file cut short under us is an error here and never a SIGBUS.
 * One thread at a time.
 */
#ifndef PROBING_CONVERTER_SOURCE_H
#define PROBING_CONVERTER_SOURCE_H

#include <stddef.h>
#include <stdint.h>

/* How files of other places are read; by the Python package, which has fsspec for it. Both return -errno when they cannot. Called by
 * whichever thread reads. */
struct source_remote {
    int64_t (*size)(const char *url);
    int64_t (*read)(const char *url, uint64_t off, void *to, size_t n); /* bytes read, n */
};

/* Once, before the first is opened; it has to stay. */
void source_set_remote(const struct source_remote *remote);
/* Whether the name has a scheme and there is somebody to read such. */
int source_is_remote(const char *path);

/* Asked while a pipe is read, by whichever thread reads: nonzero ends that, source_open() returns -EINTR. NULL: to the pipe's end. */
extern int (*source_stopped)(void);

struct source {
    int fd;             /* -1: memory, or remote */
    char *url;          /* remote; else NULL */
    int error;          /* -errno of a read that failed; the bytes are missing from then on */
    const uint8_t *mem; /* borrowed */
    uint64_t size;
    int walks;    /* from hint to hint: what lies between is mostly not wanted */
    uint8_t *buf; /* the window last read */
    uint64_t buf_off;
    size_t buf_len, buf_cap;
};

/* Opens a regular file, or a pipe or "-" by copying it to an unlinked file in $TMPDIR or /tmp
 * (once a process: the copy is kept for whoever opens it again). 0 or -errno (-EISDIR: a directory). */
int source_open(struct source *s, const char *path);
/* Borrows n bytes, which must stay until source_close(). */
void source_memory(struct source *s, const void *p, size_t n);
/* A pointer to up to `want` bytes at off, valid until the next call; *got says how many there are
 * (fewer only at the end or after a read error). NULL when there are none. */
const uint8_t *source_view(struct source *s, uint64_t off, size_t want, size_t *got);
void source_close(struct source *s);

/* Which recording it is, of a pipe too (traces/run.h: `buf` has RUN_ID bytes), and its size. 0, or -errno: not known, or somewhere else. */
int source_recording(const char *path, char *buf, uint64_t *size);

#endif
