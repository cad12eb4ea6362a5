/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - system calls that go past what a program preloads. The agent is linked against these instead of libc's functions of the same names,
 * which libraries like libfaketime replace for everybody in the process: with ones that take locks (also within a signal handler), that
 * crash once exit() has run their library's destructor, and that take files of our threads for the program's (the thread sanitizer).
 */
#undef _FORTIFY_SOURCE /* its headers define some of these themselves */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "writer/sys.h"

#define CALL(type, name, number, parameters, ...)                                                  \
    type name parameters {                                                                         \
        return (type)syscall(SYS_##number, __VA_ARGS__);                                           \
    }

/* The agent creates no file that others may read. */
CALL(int, open, openat, (const char *path, int flags, ...), AT_FDCWD, path, flags, 0600)
CALL(int, openat, openat, (int dir, const char *path, int flags, ...), dir, path, flags, 0600)
CALL(int, close, close, (int fd), fd)
CALL(ssize_t, read, read, (int fd, void *to, size_t n), fd, to, n)
CALL(ssize_t, write, write, (int fd, const void *from, size_t n), fd, from, n)
CALL(ssize_t, pread, pread64, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
CALL(ssize_t, pwrite, pwrite64, (int fd, const void *from, size_t n, off_t at), fd, from, n, at)
CALL(int, stat, newfstatat, (const char *path, struct stat *to), AT_FDCWD, path, to, 0)
CALL(int, lstat, newfstatat, (const char *path, struct stat *to), AT_FDCWD, path, to,
     AT_SYMLINK_NOFOLLOW)
CALL(int, fstat, newfstatat, (int fd, struct stat *to), fd, "", to, AT_EMPTY_PATH)
CALL(int, nanosleep, clock_nanosleep, (const struct timespec *t, struct timespec *left),
     CLOCK_REALTIME, 0, t, left)

/* libc's own: the kernel answers most clocks without a system call. */
static int (*libc_clock)(clockid_t, struct timespec *);

int clock_gettime(clockid_t id, struct timespec *to) {
    return libc_clock ? libc_clock(id, to) : (int)syscall(SYS_clock_gettime, id, to);
}

__attribute__((constructor)) static void find_clock(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    libc_clock = libc ? dlsym(libc, "clock_gettime") : NULL;
}
