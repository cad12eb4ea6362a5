/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pack_file_new(const char *path, char temporary[PATH_MAX]) {
    const char *slash = strrchr(path, '/');

    if (snprintf(temporary, PATH_MAX, "%.*s.probing-pack-XXXXXX",
                 slash ? (int)(slash + 1 - path) : 0, path) >= PATH_MAX)
        return -ENAMETOOLONG;
    int fd = mkostemp(temporary, O_CLOEXEC); /* 0600 */
    return fd < 0 ? -errno : fd;
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
    if (close(fd) < 0 && !rc)
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
    return rc ? rc : sync_names(path);
}
