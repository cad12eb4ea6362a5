/* SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include "../traces/own_file.h"
#include "../traces/plain_file.h"
#include "sys.h"

#define ANYBODY ((uid_t)-1)

/* Takes the lock that keeps other runs from taking the file's name (traces/run.h). A run that checks the file holds the lock for an instant only. */
static int hold(int fd) {
    for (int i = 0; flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK; i++) {
        if (i == 100)
            return -EAGAIN;
        sys_sleep(SYS_MS);
    }
    return 0;
}

static int is_ours(const struct tracefile *f, struct stat *st) {
    return f->fd >= 0 && fstat(f->fd, st) == 0 && st->st_dev == f->dev && st->st_ino == f->ino;
}

/* Takes a file that was just opened; fd < 0: errno says why it was not. owner: whose regular file it must be; ANYBODY: it is new.
 * Until it was locked, another run or a finisher may have removed or renamed it, as nobody seemed to write it. */
static int remember(struct tracefile *f, int fd, uid_t owner) {
    struct stat st, named;
    int rc = fd < 0 ? -errno : hold(fd) ?: fstat(fd, &st) < 0 ? -errno : 0;
    if (!rc && owner != ANYBODY && (!S_ISREG(st.st_mode) || st.st_uid != owner))
        rc = -EPERM;
    if (!rc && (lstat(f->path, &named) || named.st_ino != st.st_ino || named.st_dev != st.st_dev))
        rc = -EAGAIN;
    if (rc == -EAGAIN && owner == ANYBODY)
        rc = -EEXIST;
    if (rc) {
        close(fd);
        return rc;
    }
    if (owner == ANYBODY)
        own_file(fd);
    f->fd = sys_high_fd(fd);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->len = (uint64_t)st.st_size;
    return 0;
}

static int set_path(struct tracefile *f, const char *path) {
    *f = (struct tracefile){.fd = -1};
    if (path[0] != '/' || strlen(path) >= sizeof f->path)
        return path[0] != '/' ? -EINVAL : -ENAMETOOLONG;
    strcpy(f->path, path);
    return 0;
}

int tracefile_create(struct tracefile *f, const char *path) {
    int rc = set_path(f, path);
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return rc ? rc : remember(f, open(path, flags, 0600), ANYBODY);
}

int tracefile_open(struct tracefile *f, const char *path, uid_t owner) {
    int rc = set_path(f, path);
    return rc ? rc : remember(f, open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK), owner);
}

/* Makes sure that fd is our file, and that the file still has a name. */
static int check(struct tracefile *f) {
    struct stat st;
    if (!is_ours(f, &st)) {
        f->fd = open(f->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (f->fd < 0)
            return -errno;
        if (!is_ours(f, &st)) {
            close(f->fd);
            f->fd = -1;
            return -ESTALE;
        }
        f->fd = sys_high_fd(f->fd);
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
    size_t have = 0;
    int rc = check(f);
    if (!rc)
        rc = plain_file_read(f->fd, off, buf, n, &have);
    return !rc && have < n ? -ENODATA : rc;
}

int tracefile_cut(struct tracefile *f, uint64_t len) {
    int rc = f->none ? 0 : check(f);
    if (!rc && !f->none && ftruncate(f->fd, (off_t)len) < 0)
        rc = -errno;
    if (!rc)
        f->len = len;
    return rc;
}

/* ---- blocks as frames ---- */

/* Grows the buffer to at least n bytes; keeps the contents. */
static int buffer_reserve(struct buffer *b, size_t n) {
    if (n > b->cap) {
        uint8_t *p = realloc(b->bytes, n);
        if (!p)
            return -ENOMEM;
        b->bytes = p;
        b->cap = n;
    }
    return 0;
}

int frame_put(ZSTD_CCtx *zstd, const uint8_t *raw, size_t n, struct trace_hint *hint,
              struct buffer *out, size_t *len) {
    size_t bound = ZSTD_compressBound(n);
    int rc = buffer_reserve(out, *len + TRACE_HINT_SIZE + bound);
    if (rc)
        return rc;
    uint8_t *p = out->bytes + *len;
    size_t packed = ZSTD_compress2(zstd, p + TRACE_HINT_SIZE, bound, raw, n);
    if (ZSTD_isError(packed))
        return -ENOMEM; /* no other error can happen: there is room, and the parameters are ours */
    hint->compressed = (uint32_t)packed;
    trace_hint_put(p, hint);
    *len += TRACE_HINT_SIZE + packed;
    return 0;
}

int frame_hint(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
               uint64_t *next) {
    uint8_t head[TRACE_HINT_SIZE];
    int rc = limit - pos < sizeof head ? -EBADMSG : tracefile_read(f, pos, head, sizeof head);
    if (!rc)
        rc = trace_hint_get(head, sizeof head, hint);
    if (rc)
        return rc;
    if (hint->raw > TRACE_BLOCK_MAX || hint->compressed > ZSTD_compressBound(TRACE_BLOCK_MAX) ||
        hint->compressed > limit - pos - sizeof head)
        return -EBADMSG;
    *next = pos + sizeof head + hint->compressed;
    return 0;
}

int frame_at(struct tracefile *f, uint64_t pos, uint64_t limit, struct trace_hint *hint,
             uint64_t *next) {
    uint8_t head[8];
    int rc = limit - pos < sizeof head ? -EBADMSG : tracefile_read(f, pos, head, sizeof head);
    if (rc || !trace_is_skippable(trace_get32(head)) || trace_get32(head) == TRACE_HINT_MAGIC)
        return rc ? rc : frame_hint(f, pos, limit, hint, next);
    *hint = (struct trace_hint){0};
    *next = pos + sizeof head + trace_get32(head + 4);
    return *next > limit ? -EBADMSG : 0;
}

int frame_get(struct tracefile *f, uint64_t pos, const struct trace_hint *hint, ZSTD_DCtx *zstd,
              struct buffer *packed, struct buffer *raw, struct trace_block_header *h) {
    int rc = buffer_reserve(packed, hint->compressed);
    if (!rc)
        rc = buffer_reserve(raw, hint->raw);
    if (!rc)
        rc = tracefile_read(f, pos + TRACE_HINT_SIZE, packed->bytes, hint->compressed);
    if (rc)
        return rc;
    if (ZSTD_decompressDCtx(zstd, raw->bytes, hint->raw, packed->bytes, hint->compressed) !=
        hint->raw)
        return -EBADMSG;
    return trace_block_header_get(raw->bytes, hint->raw, h);
}

/* ---- the seek table ---- */

/* Walks all frames; with `write`, writes their entries into the file from *off on. */
static int walk(struct tracefile *f, int write, uint64_t *off, uint64_t *frames) {
    uint8_t out[4096];
    size_t used = 0;
    struct trace_hint h;
    int rc;

    *frames = 0;
    for (uint64_t pos = 0, next; pos < f->len; pos = next) {
        if ((rc = frame_at(f, pos, f->len, &h, &next)))
            return rc;
        trace_seek_entry(out + used, h.compressed ? TRACE_HINT_SIZE : (uint32_t)(next - pos), 0);
        trace_seek_entry(out + used + 8, h.compressed, h.raw);
        *frames += h.compressed ? 2 : 1;
        used += !write ? 0 : h.compressed ? 16 : 8;
        if (used > sizeof out - 16 || (used && next == f->len)) {
            if ((rc = write_at(f, out, used, *off)))
                return rc;
            *off += used;
            used = 0;
        }
    }
    return 0;
}

int tracefile_seek_table(struct tracefile *f) {
    uint64_t frames, again, off = f->len + 8;
    uint8_t head[8], foot[TRACE_SEEK_FOOT];

    if (f->none)
        return 0;
    int rc = check(f);
    if (!rc)
        rc = walk(f, 0, &off, &frames);
    if (!rc && (frames == 0 || frames > TRACE_SEEK_MOST))
        rc = -EFBIG;
    if (rc)
        return rc;
    trace_seek_head(head, frames);
    trace_seek_foot(foot, frames);
    /* The head is written last: until then a reader sees zeros, which are no frame. */
    rc = walk(f, 1, &off, &again);
    if (!rc)
        rc = write_at(f, foot, sizeof foot, off);
    if (!rc)
        rc = write_at(f, head, sizeof head, f->len);
    if (rc || again != frames) {
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
