/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".probing-pack-"
#define RANDOM    6 /* characters that follow, by which mkostemp() makes the name a new one */

/* Returns 1 if the file was left by a pack that was killed: it is ours, nobody holds the lock on it, and it begins as a trace does, or nothing had been written
 * yet. */
static int is_left(int fd) {
    uint8_t head[4];
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return 0;
    return (st.st_size == 0 || (pread(fd, head, sizeof head, 0) == sizeof head &&
                                trace_get32(head) == TRACE_HINT_MAGIC)) &&
           flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Deletes such files from the directory, unless the call before was for the same directory. */
static void sweep(const char *dir) {
    static char last[PATH_MAX] = "/";
    struct dirent *e;

    if (strcmp(dir, last) == 0)
        return;
    strcpy(last, dir);
    DIR *d = opendir(dir);
    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, TEMPORARY, strlen(TEMPORARY)) != 0 ||
            strlen(e->d_name) != strlen(TEMPORARY) + RANDOM)
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && is_left(fd))
            unlinkat(dirfd(d), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

int pack_file_new(const char *path, char temporary[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash + 1 - path) : 0;
    char dir[PATH_MAX];

    if (snprintf(dir, sizeof dir, "%.*s", n ? n : 1, n ? path : ".") >= PATH_MAX ||
        snprintf(temporary, PATH_MAX, "%.*s" TEMPORARY "XXXXXX", n, path) >= PATH_MAX)
        return -ENAMETOOLONG;
    sweep(dir);
    for (;;) {
        int fd = mkostemp(temporary, O_CLOEXEC); /* 0600 */
        struct stat st;
        if (fd < 0 || flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0 || st.st_nlink > 0)
            return fd < 0 ? -errno : fd;
        close(fd); /* another pack took it for left before it was locked, and deleted it */
        memcpy(temporary + strlen(temporary) - RANDOM, "XXXXXX", RANDOM);
    }
}

/* Waits until the names in the file's directory are on the disk. File systems that cannot do this count as having done it. */
static int sync_names(const char *path) {
    char dir[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');

    if (slash)
        snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return errno == EACCES ? 0 : -errno;
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        rc = -errno;
    close(fd);
    return rc;
}

int pack_file_done(int fd, int rc, const char *temporary, const char *path, int replace) {
    if (!rc && fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        rc = -errno;
    if (!rc && replace && rename(temporary, path) < 0)
        rc = -errno;
    if (!rc && !replace) {
        rc = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) < 0 ? -errno : 0;
        if (rc == -EINVAL || rc == -ENOSYS) /* the file system has no RENAME_NOREPLACE */
            rc = link(temporary, path) < 0 ? -errno : unlink(temporary) < 0 ? -errno : 0;
    }
    if (rc)
        unlink(temporary);
    close(fd); /* and with it the lock: another pack deletes a temporary file that nobody holds */
    return rc ? rc : sync_names(path);
}
