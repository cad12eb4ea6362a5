/* SPDX-License-Identifier: Apache-2.0 */
#include "own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
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

int own_dir_make(const char *path, mode_t mode) {
    struct stat st;

    if (mkdir(path, mode) == 0)
        own_dir(path);
    else if (errno != EEXIST || lstat(path, &st) < 0)
        return -errno;
    else if (S_ISLNK(st.st_mode) && st.st_uid && st.st_uid != geteuid())
        return -ELOOP;
    return 0;
}
