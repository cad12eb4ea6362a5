/* SPDX-License-Identifier: Apache-2.0 */
#include "own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void own_file(int fd) {
    struct stat st;

    if (fstat(fd, &st) == 0 && (st.st_mode & 0600) != 0600)
        (void)!fchmod(fd, (st.st_mode & 0777) | 0600);
}

void own_dir(const char *path) {
    struct stat st;
    char link[64];
    int fd;

    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_mode & 0700) == 0700 ||
        (fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return;
    /* Not by fchmodat(): the C library looks for fd among those of the main thread, and the agent's threads have a table of their own. */
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    (void)!chmod(link, (st.st_mode & 0777) | 0700);
    close(fd);
}

/* Makes the folder under another name beside it and renames it once its owner can use it: whoever finds it there can use it at once. Returns 0; -1: it was
 * not made (something else has got its name by now, or the file system cannot rename like that). */
static int make_aside(const char *path, mode_t mode) {
    char aside[4096];
    const char *base = strrchr(path, '/');
    int len = snprintf(aside, sizeof aside, "%.*s.probing-%ld", base ? (int)(base + 1 - path) : 0,
                       path, (long)syscall(SYS_gettid));

    if (len >= (int)sizeof aside || mkdir(aside, mode) < 0)
        return -1;
    own_dir(aside);
    /* never over another's folder, even an empty one: it may be creating a file there */
    if (syscall(SYS_renameat2, AT_FDCWD, aside, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    rmdir(aside);
    return -1;
}

int own_dir_make(const char *path, mode_t mode) {
    struct stat st;

    if (lstat(path, &st) < 0 && errno == ENOENT && make_aside(path, mode) == 0)
        return 0;
    /* What is there by now may be a link, so it is looked at as if it had been there before. */
    if (mkdir(path, mode) == 0)
        own_dir(path);
    else if (errno != EEXIST || lstat(path, &st) < 0)
        return -errno;
    else if (S_ISLNK(st.st_mode) && st.st_uid && st.st_uid != geteuid())
        return -ELOOP;
    return 0;
}
