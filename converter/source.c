/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW (256u << 10)
#define LITTLE 4096
#define NEAR   1024 /* a hint is passed over */

/* An unlinked file to spool into. */
static int temp_file(void) {
    const char *dir = getenv("TMPDIR");
    char path[4096];

    if (!dir || !*dir)
        dir = "/tmp";
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (snprintf(path, sizeof path, "%s/probing-spool-XXXXXX", dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

static int write_all(int fd, const uint8_t *p, size_t n) {
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Copies a pipe to a temporary file; returns its descriptor or -errno. */
static int spool(int from) {
    uint8_t *buf = malloc(WINDOW);
    int to = buf ? temp_file() : -ENOMEM;
    int err = to < 0 ? to : 0;

    while (!err) {
        ssize_t k = read(from, buf, WINDOW);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            err = -errno;
        if (k <= 0)
            break;
        err = write_all(to, buf, (size_t)k);
    }
    free(buf);
    if (err && to >= 0)
        close(to);
    return err ? err : to;
}

/* What came through a pipe can be read once, and is read by several. */
static int spooled = -1;

static const struct source_remote *remote;

void source_set_remote(const struct source_remote *r) {
    remote = r;
}

int source_is_remote(const char *path) {
    size_t scheme =
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

    return remote && scheme && strncmp(path + scheme, "://", 3) == 0;
}

static int open_remote(struct source *s, const char *url) {
    int64_t size = remote->size(url);

    s->fd = -1;
    if (size < 0)
        return (int)size;
    s->size = (uint64_t)size;
    return (s->url = strdup(url)) ? 0 : -ENOMEM;
}

int source_open(struct source *s, const char *path) {
    struct stat st;
    int std_in = strcmp(path, "-") == 0;
    int err = 0;

    memset(s, 0, sizeof *s);
    if (source_is_remote(path))
        return open_remote(s, path);
    if (std_in && spooled >= 0) {
        s->fd = fcntl(spooled, F_DUPFD_CLOEXEC, 3);
        if (s->fd < 0 || fstat(s->fd, &st) != 0)
            return -errno;
        s->size = (uint64_t)st.st_size;
        return 0;
    }
    s->fd = std_in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (s->fd < 0)
        return -errno;
    if (fstat(s->fd, &st) != 0)
        err = -errno;
    else if (S_ISDIR(st.st_mode))
        err = -EISDIR;
    if (!err && !S_ISREG(st.st_mode)) {
        int fd = spool(s->fd);
        if (!std_in)
            close(s->fd);
        s->fd = fd;
        if (std_in && fd >= 0)
            spooled = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        std_in = 0;
        if (fd < 0)
            return fd;
        if (fstat(fd, &st) != 0)
            err = -errno;
    } else if (!err && std_in) {
        /* `< file`: our own descriptor, so that closing does not close stdin */
        s->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        if (s->fd < 0)
            return -errno;
        std_in = 0;
    }
    if (err) {
        if (!std_in)
            close(s->fd);
        s->fd = -1;
        return err;
    }
    s->size = (uint64_t)st.st_size;
    return 0;
}

void source_memory(struct source *s, const void *p, size_t n) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->mem = p;
    s->size = n;
}

/* A window of a remote file: what is asked for and no more, who reads it knows what comes next. */
static size_t read_remote(struct source *s, uint64_t off, size_t n) {
    int64_t have = s->error ? s->error : remote->read(s->url, off, s->buf, n);

    if (have < 0)
        s->error = (int)have;
    return have < 0 ? 0 : (size_t)have < n ? (size_t)have : n;
}

/* Reads the window at off; what is missing afterwards is missing for good. */
static int refill(struct source *s, uint64_t off, size_t want) {
    /* who goes on reads ahead; who leaps (walks hints, picks blocks) wants that and no more */
    uint64_t end = s->buf_off + s->buf_len;
    size_t least = off >= s->buf_off && off <= end + NEAR ? WINDOW : LITTLE;
    size_t cap = s->url || want > least ? want : least;
    size_t have = 0;

    if (s->buf_cap < cap) {
        uint8_t *p = realloc(s->buf, cap);
        if (!p)
            return -ENOMEM;
        s->buf = p;
        s->buf_cap = cap;
    }
    if (cap > s->size - off)
        cap = (size_t)(s->size - off);
    if (s->url)
        have = read_remote(s, off, cap);
    while (!s->url && have < cap) {
        ssize_t k = pread(s->fd, s->buf + have, cap - have, (off_t)(off + have));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            s->error = -errno;
        if (k <= 0)
            break;
        have += (size_t)k;
    }
    s->buf_off = off;
    s->buf_len = have;
    return 0;
}

const uint8_t *source_view(struct source *s, uint64_t off, size_t want, size_t *got) {
    *got = 0;
    if (off >= s->size)
        return NULL;
    if (want > s->size - off)
        want = (size_t)(s->size - off);
    if (s->mem) {
        *got = want;
        return s->mem + off;
    }
    if (off < s->buf_off || off + want > s->buf_off + s->buf_len) {
        if (refill(s, off, want) != 0)
            return NULL;
    }
    *got = want < s->buf_len ? want : s->buf_len;
    if (off >= s->buf_off && off - s->buf_off + *got > s->buf_len)
        *got = (size_t)(s->buf_len - (off - s->buf_off));
    return *got ? s->buf + (off - s->buf_off) : NULL;
}

void source_close(struct source *s) {
    if (s->fd >= 0)
        close(s->fd);
    free(s->buf);
    free(s->url);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}
