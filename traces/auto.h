/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auto.h - variables whose resource is released at the end of the block that declares them, however the block is left.
 *
 *     AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     AUTO_FREE char *text = strdup(path);
 */
#ifndef PROBING_TRACES_AUTO_H
#define PROBING_TRACES_AUTO_H

#include <stdlib.h>
#include <unistd.h>

/* Closes a file descriptor; does nothing when it is negative. */
#define AUTO_CLOSE __attribute__((cleanup(auto_close)))
static inline void auto_close(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}

/* Frees memory from malloc(); the pointer may be NULL. */
#define AUTO_FREE __attribute__((cleanup(auto_free)))
static inline void auto_free(void *pointer) {
    free(*(void **)pointer);
}

#endif
