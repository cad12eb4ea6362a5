/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 16

/* Opens `name` for inspection only: O_PATH neither opens the file itself nor triggers a mount. Returns the descriptor or -errno. */
static int open_to_inspect(int at, const char *name, struct stat *st) {
    struct statfs fs;
    int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int err = fd < 0 ? -errno : 0;

    if (!err && (fstat(fd, st) < 0 || fstatfs(fd, &fs) < 0))
        err = -errno;
    if (!err &&
        (fs.f_type == AUTOFS_SUPER_MAGIC || fs.f_type == PROC_SUPER_MAGIC ||
         fs.f_type == SYSFS_MAGIC || fs.f_type == DEBUGFS_MAGIC || fs.f_type == TRACEFS_MAGIC))
        err = -EPERM;
    if (err && fd >= 0)
        close(fd);
    return err ? err : fd;
}

/* Opens the last part of the path, by its name, and verifies that it is still the file that was checked. */
static int open_last(int at, const char *name, const struct stat *seen) {
    struct stat st;
    int fd = S_ISREG(seen->st_mode)
                 ? openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                 : -1;

    if (!S_ISREG(seen->st_mode))
        return -EINVAL;
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || st.st_ino != seen->st_ino || st.st_dev != seen->st_dev) {
        close(fd);
        return -ESTALE;
    }
    return fd;
}

int plain_file_read(int fd, uint64_t off, void *buf, size_t n, size_t *have) {
    *have = 0;
    while (*have < n) {
        ssize_t k = pread(fd, (char *)buf + *have, n - *have, (off_t)(off + *have));
        if (k == 0 || (k < 0 && errno != EINTR))
            return k < 0 ? -errno : 0;
        *have += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

int plain_file_open(const char *path) {
    char rest[8192], link[4096], name[256];
    int at = -1, links = 0, result = path[0] == '/' ? -ENOENT : -EINVAL;
    int more = path[0] == '/' && snprintf(rest, sizeof rest, "%s", path) < (int)sizeof rest;

    while (more) {
        const char *p = rest + strspn(rest, "/");
        size_t n = strcspn(p, "/");
        struct stat st;
        int next;

        more = 0;
        if (at < 0 && (at = open("/", O_PATH | O_CLOEXEC)) < 0)
            result = -errno;
        if (at < 0 || n == 0 || n >= sizeof name)
            break;
        memcpy(name, p, n);
        name[n] = 0;
        if ((next = open_to_inspect(at, name, &st)) < 0) {
            result = next;
            break;
        }
        p += n;
        if (S_ISLNK(st.st_mode)) {
            ssize_t k = readlinkat(next, "", link, sizeof link - 1);
            char after[sizeof rest];
            link[k > 0 ? k : 0] = 0;
            snprintf(after, sizeof after, "%s", p);
            more = k > 0 && ++links <= LINKS_MAX &&
                   snprintf(rest, sizeof rest, "%s%s", link, after) < (int)sizeof rest;
            result = more ? result : -ELOOP;
            close(next);
            if (link[0] == '/') {
                close(at);
                at = -1;
            }
        } else if (p[strspn(p, "/")]) {
            memmove(rest, p, strlen(p) + 1);
            close(at);
            at = next;
            more = 1;
        } else {
            close(next);
            result = open_last(at, name, &st);
        }
    }
    if (at >= 0)
        close(at);
    return result;
}
