/* SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../traces/block.h"

/* Far from the small numbers that programs count on getting and close in loops. */
#define HIGH_FD 700

static int move_up(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) /* the limit may be low: then it stays where it is */
        return fd;
    close(fd);
    return high;
}

static int is_ours(const struct tracefile *f, struct stat *st) {
    return f->fd >= 0 && fstat(f->fd, st) == 0 && st->st_dev == f->dev && st->st_ino == f->ino;
}

/* While we write it, no other run takes its name (traces/run.h). Who looks holds the lock for an instant. */
static void hold(int fd) {
    for (int i = 0; flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK && i < 100; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int remember(struct tracefile *f, int fd) {
    struct stat st;
    fd = move_up(fd);
    if (fstat(fd, &st) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    flock(fd,
          LOCK_SH | LOCK_NB); /* while we write it, no other run takes its name (traces/run.h) */
    f->fd = fd;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->len = (uint64_t)st.st_size;
    return 0;
}

static int set_path(struct tracefile *f, const char *path) {
    memset(f, 0, sizeof *f);
    f->fd = -1;
    if (path[0] != '/')
        return -EINVAL;
    if (strlen(path) >= sizeof f->path)
        return -ENAMETOOLONG;
    strcpy(f->path, path);
    return 0;
}

int tracefile_create(struct tracefile *f, const char *path) {
    int rc = set_path(f, path);
    if (rc)
        return rc;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : remember(f, fd);
}

void tracefile_none(struct tracefile *f) {
    memset(f, 0, sizeof *f);
    f->fd = -1;
    f->none = 1;
}

int tracefile_open(struct tracefile *f, const char *path, uid_t owner) {
    struct stat st;
    int rc = set_path(f, path);
    if (rc)
        return rc;
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode) || st.st_uid != owner)
        rc = -EPERM;
    if (rc) {
        close(fd);
        return rc;
    }
    return remember(f, fd);
}

/* Makes sure that fd is our file, and that the file still has a name. */
static int check(struct tracefile *f) {
    struct stat st;
    if (!is_ours(f, &st)) {
        int fd = open(f->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return -errno;
        f->fd = fd; /* the number we had belongs to somebody else, or to nobody */
        if (!is_ours(f, &st)) {
            close(fd);
            f->fd = -1;
            return -ESTALE;
        }
        f->fd = move_up(fd);
        hold(f->fd);
    }
    return st.st_nlink == 0 ? -ENOENT : 0;
}

static int write_at(struct tracefile *f, const void *bytes, size_t n, uint64_t off) {
    const char *p = bytes;
    while (n) {
        ssize_t put = pwrite(f->fd, p, n, (off_t)off);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        p += put;
        n -= (size_t)put;
        off += (uint64_t)put;
    }
    return 0;
}

int tracefile_append(struct tracefile *f, const void *bytes, size_t n) {
    int rc = f->none ? 0 : check(f);
    if (rc)
        return rc;
    rc = f->none ? 0 : write_at(f, bytes, n, f->len);
    if (rc) {
        int cut;
        do
            cut = ftruncate(f->fd, (off_t)f->len);
        while (cut < 0 && errno == EINTR);
    } else {
        f->len += n;
    }
    return rc;
}

int tracefile_read(struct tracefile *f, uint64_t off, void *buf, size_t n) {
    char *p = buf;
    int rc = check(f);
    while (n && !rc) {
        ssize_t got = pread(f->fd, p, n, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            rc = got < 0 ? -errno : -ENODATA;
        } else {
            p += got;
            n -= (size_t)got;
            off += (uint64_t)got;
        }
    }
    return rc;
}

int tracefile_cut(struct tracefile *f, uint64_t len) {
    int rc = f->none ? 0 : check(f);
    if (!rc && !f->none && ftruncate(f->fd, (off_t)len) < 0)
        rc = -errno;
    if (!rc)
        f->len = len;
    return rc;
}

/*
 * The table, as the zstd seekable format has it: a skippable frame of one entry (compressed size,
 * decompressed size) for every frame before it, hint frames included, and a footer.
 */
#define SEEK_MAGIC  0x184D2A5Eu
#define SEEK_FOOTER 0x8F92EAB1u

static void put32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Walks all frames; with `write`, puts their entries into the file from *off on. */
static int walk(struct tracefile *f, int write, uint64_t *off, uint64_t *blocks) {
    uint8_t hint[TRACE_HINT_SIZE], out[4096];
    size_t used = 0;
    struct trace_hint h;
    int rc = 0;

    *blocks = 0;
    for (uint64_t pos = 0; pos < f->len && !rc;) {
        rc = tracefile_read(f, pos, hint, sizeof hint);
        if (!rc)
            rc = trace_hint_get(hint, sizeof hint, &h);
        if (rc)
            break;
        pos += sizeof hint + h.compressed;
        if (pos > f->len)
            rc = -EBADMSG;
        ++*blocks;
        if (!write)
            continue;
        put32(out + used, TRACE_HINT_SIZE);
        put32(out + used + 4, 0);
        put32(out + used + 8, h.compressed);
        put32(out + used + 12, h.raw);
        used += 16;
        if (used == sizeof out) {
            rc = write_at(f, out, used, *off);
            *off += used;
            used = 0;
        }
    }
    if (!rc && used) {
        rc = write_at(f, out, used, *off);
        *off += used;
    }
    return rc;
}

int tracefile_seek_table(struct tracefile *f) {
    uint64_t blocks, again, off = f->len + 8;
    uint8_t head[8], foot[9];
    int rc = 0;

    if (f->none)
        return 0;
    rc = check(f);
    if (!rc)
        rc = walk(f, 0, &off, &blocks);
    if (!rc && (blocks == 0 || blocks > 0x8000000u / 2)) /* more than the format allows */
        rc = -EFBIG;
    if (rc)
        return rc;
    put32(head, SEEK_MAGIC);
    put32(head + 4, (uint32_t)(blocks * 16 + sizeof foot));
    put32(foot, (uint32_t)(blocks * 2));
    foot[4] = 0; /* entries have no checksums: every frame has its own */
    put32(foot + 5, SEEK_FOOTER);
    /* The head comes last: until then a reader sees zeros, which are no frame. */
    rc = walk(f, 1, &off, &again);
    if (!rc)
        rc = write_at(f, foot, sizeof foot, off);
    if (!rc)
        rc = write_at(f, head, sizeof head, f->len);
    if (rc || again != blocks) {
        if (ftruncate(f->fd, (off_t)f->len) < 0 && !rc)
            rc = -errno;
        return rc ? rc : -EBADMSG;
    }
    f->len = off + sizeof foot;
    return 0;
}

void tracefile_close(struct tracefile *f) {
    struct stat st;
    if (is_ours(f, &st))
        close(f->fd);
    f->fd = -1;
}
