/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks a packed core (systemd-coredump packs with zstd or lz4, others with gzip or xz) into a file without a name in
 * $TMPDIR, /var/tmp or /tmp, with holes for pages of zeros. zstd uses its library, the others their commands.
 */
#include <sys/wait.h>
#include <zstd.h>

#include "text.h"

#define CHUNK 4096

struct sink {
    int fd, failed;
    uint64_t at;
};

/* Writes the bytes, but leaves out chunks of zeros. */
static void sink_put(struct sink *k, const char *p, size_t n) {
    static const char zero[CHUNK];

    for (size_t part; n > 0 && !k->failed; p += part, n -= part, k->at += part) {
        part = n < CHUNK ? n : CHUNK;
        if (memcmp(p, zero, part) != 0 && pwrite(k->fd, p, part, (off_t)k->at) != (ssize_t)part)
            k->failed = errno ? errno : EIO;
    }
}

/* Keeps what could be unpacked of a damaged file: the core's own headers will show that it is cut. */
static int unzstd(int in, struct sink *k) {
    ZSTD_DStream *z = ZSTD_createDStream();
    size_t from = ZSTD_DStreamInSize(), to = ZSTD_DStreamOutSize();
    AUTO_FREE char *a = malloc(from), *b = malloc(to);
    int rc = z && a && b ? 0 : -ENOMEM;
    ssize_t n;

    while (rc == 0 && !k->failed && (n = read(in, a, from)) > 0) {
        ZSTD_inBuffer src = {a, (size_t)n, 0};
        while (src.pos < src.size && !k->failed) {
            ZSTD_outBuffer dst = {b, to, 0};
            size_t r = ZSTD_decompressStream(z, &dst, &src);
            sink_put(k, b, dst.pos);
            if (ZSTD_isError(r)) {
                rc = k->at ? 1 : -EBADMSG;
                break;
            }
        }
    }
    ZSTD_freeDStream(z);
    return rc < 0 ? rc : 0;
}

static int by_command(int in, const char *command, struct sink *k) {
    int pipes[2], st = 0;
    char buf[65536];
    pid_t pid;
    ssize_t n;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(in, 0);
        dup2(pipes[1], 1);
        if (null >= 0)
            dup2(null, 2);
        execlp(command, command, "-dc", (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    while (pid > 0 && !k->failed && (n = read(pipes[0], buf, sizeof buf)) > 0)
        sink_put(k, buf, (size_t)n);
    close(pipes[0]);
    if (pid < 0)
        return -errno;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(st) && WEXITSTATUS(st) == 127 && k->at == 0)
        return -ENOPKG;
    return k->at ? 0 : -EBADMSG;
}

static int temporary(void) {
    const char *dirs[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    int fd = -1;

    for (int i = 0; i < 3 && fd < 0; i++) {
        char name[4096];
        if (!dirs[i])
            continue;
        fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) { /* a file system without O_TMPFILE */
            snprintf(name, sizeof name, "%s/probing-core-XXXXXX", dirs[i]);
            fd = mkostemp(name, O_CLOEXEC);
            if (fd >= 0)
                unlink(name);
        }
    }
    return fd;
}

int core_unpack(const char *path, char **why) {
    static const struct {
        unsigned char magic[6];
        unsigned char n;
        const char *command; /* NULL: the zstd library */
    } kinds[] = {{{0x28, 0xb5, 0x2f, 0xfd}, 4, NULL},
                 {{0x1f, 0x8b}, 2, "gzip"},
                 {{0xfd, '7', 'z', 'X', 'Z', 0}, 6, "xz"},
                 {{0x04, 0x22, 0x4d, 0x18}, 4, "lz4"}};
    unsigned char head[8] = {0};
    int in = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    struct sink k = {.fd = -1};
    size_t i = 0;

    if (in < 0) {
        rc = -errno;
        return fail(why, rc, "cannot open the core %s: %s", path, strerror(-rc));
    }
    if (pread(in, head, sizeof head, 0) < 4)
        return in; /* core_open() says what is wrong with it */
    while (i < sizeof kinds / sizeof *kinds && memcmp(head, kinds[i].magic, kinds[i].n) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return in; /* not packed */
    if ((k.fd = temporary()) < 0) {
        rc = fail(why, -errno, "no temporary file to unpack %s into: %s (set TMPDIR)", path,
                  strerror(errno));
    } else {
        rc = kinds[i].command ? by_command(in, kinds[i].command, &k) : unzstd(in, &k);
        if (rc == 0 && (k.failed || ftruncate(k.fd, (off_t)k.at) < 0))
            rc = -(k.failed ? k.failed : errno);
        if (rc == -ENOPKG)
            *why = say("%s is packed with %s, which is not installed", path, kinds[i].command);
        else if (rc < 0)
            *why = say("cannot unpack %s: %s%s", path,
                       rc == -EBADMSG ? "it is damaged" : strerror(-rc),
                       rc == -ENOSPC ? " (set TMPDIR to a larger place)" : "");
    }
    close(in);
    if (rc < 0 && k.fd >= 0)
        close(k.fd);
    return rc < 0 ? rc : k.fd;
}
