/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../traces/plain_file.h"
#include "../traces/run.h"

/* a larger window would be fresh memory for each file, touched page by page */
#define WINDOW (64u << 10)
#define LITTLE 512
/* a gap of this size (a hint, or a small block) still counts as reading on */
#define NEAR 4096
/* a file of this size is read completely: its blocks are wanted next */
#define SMALL   (4 * WINDOW)
#define LOOK_MS 200
#define QUIET   10          /* looks at a pipe that brings no byte before source_waits() */
#define HINT    12          /* length of what every hint begins with */
#define NO_END  (64u << 20) /* bytes of a pipe without a trace: some 4 MiB blocks may be damaged */
#define COPIES  64

/* Makes an unlinked file to spool into. */
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

int (*source_stopped)(void);

void (*source_waits)(const char *path);

/* Waits until there is something to read, or the end. Returns 0, or -EINTR if source_stopped() ends it, because a pipe may go on for ever. */
static int wait_for(int from, const char *path, unsigned *looks) {
    struct pollfd p = {.fd = from, .events = POLLIN};
    int ready = 0;

    while (ready <= 0) {
        if (source_stopped && source_stopped())
            return -EINTR;
        if ((*looks)++ == QUIET && source_waits)
            source_waits(path);
        ready = poll(&p, 1, LOOK_MS);
    }
    *looks = QUIET + 1; /* it has a writer: source_waits() is not called any more */
    return 0;
}

/* Returns whether a block of a trace begins in the n bytes at p, or these are the first ones (n == size) and begin a zstd file. */
static int is_like_trace(const uint8_t *p, size_t n, uint64_t size) {
    static const uint8_t hint[HINT] = {0x5d, 0x2a, 0x4d, 0x18, 60, 0, 0, 0, 'P', 'R', 'B', 'h'};

    return memmem(p, n, hint, sizeof hint) ||
           (n == size && n >= 4 && memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0);
}

/* Copies a pipe to a temporary file; returns its descriptor or -errno. */
static int spool(int from, const char *path) {
    uint8_t *buf = malloc(WINDOW);
    int to = buf ? temp_file() : -ENOMEM;
    int err = to < 0 ? to : 0, is_trace = 0;
    uint64_t size = 0;
    size_t kept = 0; /* bytes kept of the part before, because a block may begin at its end */
    unsigned looks = 0;

    while (!err && (err = wait_for(from, path, &looks)) == 0) {
        ssize_t k = read(from, buf + kept, WINDOW - HINT); /* kept is less than HINT */
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k < 0)
            err = -errno;
        if (k <= 0)
            break;
        err = write_all(to, buf + kept, (size_t)k);
        size += (size_t)k;
        kept += (size_t)k;
        is_trace = is_trace || is_like_trace(buf, kept, size);
        if (!is_trace && size > NO_END)
            break;
        size_t tail = is_trace ? 0 : kept < HINT ? kept : HINT - 1;
        memmove(buf, buf + kept - tail, tail);
        kept = tail;
    }
    free(buf);
    if (err && to >= 0)
        close(to);
    return err ? err : to;
}

/* Copies of pipes that were read, found by the pipe: what comes through a pipe can be read only once, but several readers need it. `pipe` holds the pipe
 * (without being a reader of it), so that no later one gets its inode's number. */
static struct {
    dev_t dev;
    ino_t ino;
    int fd, pipe;
} copy_of[COPIES];
static unsigned copies;
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns a descriptor of the copy, -1 if there is none. */
static int find_copy(const struct stat *pipe) {
    int fd = -1;

    pthread_mutex_lock(&copies_lock);
    for (unsigned i = 0; i < copies && fd < 0; i++)
        if (copy_of[i].dev == pipe->st_dev && copy_of[i].ino == pipe->st_ino)
            fd = fcntl(copy_of[i].fd, F_DUPFD_CLOEXEC, 3);
    pthread_mutex_unlock(&copies_lock);
    return fd;
}

static void keep_copy(const struct stat *pipe, int from, int fd) {
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    pthread_mutex_lock(&copies_lock);
    if (copies < COPIES && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) >= 0) {
        copy_of[copies].pipe = open(path, O_PATH | O_CLOEXEC);
        copy_of[copies].dev = pipe->st_dev;
        copy_of[copies].ino = pipe->st_ino;
        copy_of[copies++].fd = fd;
    }
    pthread_mutex_unlock(&copies_lock);
}

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
    int std_in = strcmp(path, "-") == 0;
    struct stat st;

    memset(s, 0, sizeof *s);
    s->fd = -1;
    if (source_is_remote(path))
        return open_remote(s, path);
    /* A pipe that was read is not opened again, as a FIFO would wait for another writer. spool() waits for the first writer, and can be stopped. */
    if ((std_in ? fstat(STDIN_FILENO, &st) : stat(path, &st)) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return !std_in && access(path, R_OK | X_OK) != 0 ? -errno : -EISDIR;
    if (S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && st.st_rdev != makedev(1, 3)))
        return -ENOTBLK;
    if (!S_ISREG(st.st_mode))
        s->fd = find_copy(&st);
    if (s->fd < 0)
        s->fd = std_in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                       : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (s->fd < 0)
        return -errno;
    int err = fstat(s->fd, &st) ? -errno : 0;
    if (!err && !S_ISREG(st.st_mode)) {
        int fd = spool(s->fd, path);
        if (fd >= 0)
            keep_copy(&st, s->fd, fd);
        close(s->fd);
        s->fd = fd;
        err = fd < 0 ? fd : fstat(fd, &st) ? -errno : 0;
    }
    if (err && s->fd >= 0)
        close(s->fd);
    if (err)
        s->fd = -1;
    s->size = err ? 0 : (uint64_t)st.st_size;
    return err;
}

void source_memory(struct source *s, const void *p, size_t n) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->mem = p;
    s->size = n;
}

/* Reads a window of a remote file: only what is asked for, because the caller knows what comes next. */
static size_t read_remote(struct source *s, uint64_t off, size_t n) {
    int64_t have = s->error ? s->error : remote->read(s->url, off, s->buf, n);

    if (have < 0)
        s->error = (int)have;
    return have < 0 ? 0 : (size_t)have < n ? (size_t)have : n;
}

/* Reads the window at off. Bytes that cannot be read are left out. */
static int refill(struct source *s, uint64_t off, size_t want) {
    /* Read ahead only for a caller that reads sequentially: one that goes from hint to hint, or picks blocks, needs no more than it asks for. */
    uint64_t end = s->buf_off + s->buf_len;
    int goes_on = off >= s->buf_off && off <= end + NEAR;
    size_t least = !goes_on ? LITTLE : s->walks && s->size > SMALL ? NEAR : WINDOW;
    size_t cap = s->url || want > least ? want : least;
    size_t have = 0;
    int err;

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
    else if ((err = plain_file_read(s->fd, off, s->buf, cap, &have)) < 0)
        s->error = err;
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

uint64_t source_data(const struct source *s, uint64_t off) {
    off_t at = s->fd >= 0 ? lseek(s->fd, (off_t)off, SEEK_DATA) : -1;

    return at >= 0 ? (uint64_t)at : s->fd >= 0 && errno == ENXIO ? s->size : off;
}

void source_close(struct source *s) {
    if (s->fd >= 0)
        close(s->fd);
    free(s->buf);
    free(s->url);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

int source_recording(const char *path, char *buf, uint64_t *size) {
    struct source s;
    int err = source_is_remote(path) ? -ENOTSUP : source_open(&s, path);

    if (err)
        return err;
    err = run_recording_of(s.fd, buf, size);
    source_close(&s);
    return err;
}
