/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *what_it_is(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static uint32_t big_endian(const char *p) {
    const unsigned char *u = (const unsigned char *)p;

    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static int begins_with(const char *p, size_t n, const char *with, size_t len) {
    return n >= len && memcmp(p, with, len) == 0;
}

/* Returns 1 when the first line, or the part of it that was read, has the form "outermost;...;innermost 12". */
static int is_folded(const char *p, size_t n) {
    const char *end = memchr(p, '\n', n), *semicolon;
    size_t len = end ? (size_t)(end - p) : n, i = len;

    semicolon = memchr(p, ';', len);
    while (end && i && p[i - 1] >= '0' && p[i - 1] <= '9')
        i--;
    return semicolon && (!end || (i < len && i > 1 && p[i - 1] == ' ')) && !memchr(p, 0, n);
}

/* Returns 1 when a file that begins with these n bytes was made by Probing. */
static int is_ours(enum output_kind kind, const char *p, size_t n) {
    static const char sqlite[16] = "SQLite format 3";

    switch (kind) {
    case OUTPUT_DATABASE:
        return n >= 100 && begins_with(p, n, sqlite, 16) &&
               big_endian(p + 68) == OUTPUT_APPLICATION_ID;
    case OUTPUT_PICTURE:
        return memmem(p, n, OUTPUT_PICTURE_MARK, sizeof OUTPUT_PICTURE_MARK - 1) != NULL;
    case OUTPUT_REPORT:
        return memmem(p, n, OUTPUT_REPORT_MARK, sizeof OUTPUT_REPORT_MARK - 1) != NULL;
    case OUTPUT_FOLDED:
        return is_folded(p, n);
    case OUTPUT_TRACE:
        return begins_with(p, n, "\x5d\x2a\x4d\x18\x3c\0\0\0PRBh", 12);
    case OUTPUT_SIDECAR: /* a rollback journal, or one that was zeroed; a WAL; a WAL's index */
        return begins_with(p, n, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8) ||
               begins_with(p, n, "\0\0\0\0\0\0\0\0", 8) || begins_with(p, n, "\x37\x7f\x06", 3) ||
               begins_with(p, n, "\x18\xe2\x2d\0", 4);
    case OUTPUT_NEW:
        return 0;
    case OUTPUT_ANY:
        return !begins_with(p, n, sqlite, 16) && !is_ours(OUTPUT_TRACE, p, n);
    }
    return 0;
}

static int is_input(const struct inputs *in, const struct stat *out) {
    struct stat st;

    for (size_t i = 0; in && i < in->n; i++) {
        const struct input *f = &in->file[i];
        if ((f->ino == out->st_ino && f->dev == out->st_dev) ||
            (strcmp(f->path, "-") == 0 && fstat(STDIN_FILENO, &st) == 0 &&
             st.st_ino == out->st_ino && st.st_dev == out->st_dev))
            return 1;
    }
    return 0;
}

/* Reads the beginning of a file that lstat() has shown to be regular. Returns the number of bytes, or -errno. */
static int read_head(const char *path, char *head, size_t n) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int got = fd < 0 ? -errno : 0;

    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)))
        got = -EINVAL;
    if (got == 0 && (got = (int)pread(fd, head, n, 0)) < 0)
        got = -errno;
    if (fd >= 0)
        close(fd);
    return got;
}

int output_check(const char *path, enum output_kind kind, const struct inputs *inputs,
                 char why[OUTPUT_WHY]) {
    static const char *const kinds[] = {"a database that probing-convert made",
                                        "a picture that probing-flamegraph drew",
                                        "a text that probing-flamegraph wrote",
                                        "a trace",
                                        "a journal of a database",
                                        "a page that probing-report wrote",
                                        "empty (-f replaces it)",
                                        "what --force replaces (a trace and a database never are)"};
    struct stat st;
    char head[512];
    int n = 0;

    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return 0;
        n = -errno;
    } else if (!S_ISREG(st.st_mode)) {
        snprintf(why, OUTPUT_WHY, "%s is %s: not replaced", path, what_it_is(st.st_mode));
        return S_ISDIR(st.st_mode) ? -EISDIR : -EEXIST;
    } else if (is_input(inputs, &st)) {
        snprintf(why, OUTPUT_WHY, "%s is one of the inputs: not replaced", path);
        return -EEXIST;
    } else if (st.st_size > 0) {
        n = read_head(path, head, sizeof head);
    }
    if (n < 0) {
        snprintf(why, OUTPUT_WHY, "cannot look at %s: %s", path, strerror(-n));
        return n;
    }
    if (st.st_size > 0 && !is_ours(kind, head, (size_t)n)) {
        snprintf(why, OUTPUT_WHY, "%s exists and is not %s: not replaced", path, kinds[kind]);
        return -EEXIST;
    }
    return 1;
}

mode_t output_most(const struct inputs *in) {
    mode_t mode = 0666;
    struct stat st;

    for (size_t i = 0; in && i < in->n; i++) {
        const char *path = in->file[i].path;
        int err = strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &st) : stat(path, &st);
        mode &= err == 0 && S_ISREG(st.st_mode) ? st.st_mode | 0600 : 0600;
    }
    return mode;
}

mode_t output_mode(const struct inputs *in) {
    mode_t mask = umask(0);

    umask(mask);
    return output_most(in) & ~mask;
}

static int is_own_file(const char *path) {
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
}

/* Returns whether nobody else can put another file in the place of this one, whose path has no links: each folder is root's, and if all may write to it, sticky. */
static int is_only_roots(char *real) {
    struct stat st;

    for (char *p = strchr(real + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        int fine =
            stat(real, &st) == 0 && st.st_uid == 0 && (!(st.st_mode & 022) || st.st_mode & S_ISVTX);
        *p = '/';
        if (!fine)
            return 0;
    }
    return 1;
}

/* Makes a database what it was before somebody who added to it was killed: the journal beside it says how. Only where both files are this user's, and stay so
 * if that is root: SQLite would also delete a file that a journal names. Returns SQLITE_OK or SQLite's code. */
static int roll_back(const char *path) {
    char *real = realpath(path, NULL), *journal = real ? sqlite3_mprintf("%s-journal", real) : NULL;
    sqlite3 *db = NULL;
    int rc = journal && (geteuid() != 0 || is_only_roots(real)) && is_own_file(real) &&
                     is_own_file(journal)
                 ? SQLITE_OK
                 : SQLITE_READONLY;

    sqlite3_free(journal);
    if (rc == SQLITE_OK)
        rc = sqlite3_open_v2(real, &db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(db, 10000); /* another reader may be doing the same */
        rc = sqlite3_exec(db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL);
    }
    sqlite3_close(db);
    free(real);
    return rc;
}

static int is_interrupted(sqlite3 *db) {
    return sqlite3_extended_errcode(db) == SQLITE_READONLY_ROLLBACK;
}

int output_open(const char *path, sqlite3 **db, int flags) {
    char *plain = sqlite3_mprintf("%s%s", strncmp(path, "file:", 5) == 0 ? "./" : "", path);
    int rc = plain ? sqlite3_open_v2(plain, db, flags, NULL) : SQLITE_NOMEM;

    if (rc == SQLITE_OK && flags & SQLITE_OPEN_READONLY &&
        sqlite3_exec(*db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL) != SQLITE_OK &&
        is_interrupted(*db))
        roll_back(plain); /* if that fails, the caller's first query does, too */
    sqlite3_free(plain);
    return rc;
}

const char *output_why(sqlite3 *db) {
    if (!db)
        return "no memory";
    return is_interrupted(db)
               ? "adding to it did not end, and what was added must be undone first, which needs its owner: "
                 "`probing-convert --append` does it, and any read by that user"
               : sqlite3_errmsg(db);
}
