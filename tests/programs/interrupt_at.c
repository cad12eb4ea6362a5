/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt_at.c - a library that sends its program a SIGINT at a moment that is hardly ever met by chance: just before the program
 * waits for its terminal for the Nth time (INTERRUPT_AT=wait:N), or changes how the terminal edits for the Nth time (INTERRUPT_AT=edit:N).
 */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static void at(const char *what) {
    const char *when = getenv("INTERRUPT_AT");
    static int count[2];
    int *n = &count[*what == 'w'];

    if (when && strncmp(when, what, strlen(what)) == 0 && ++*n == atoi(when + strlen(what) + 1))
        raise(SIGINT);
}

ssize_t read(int fd, void *to, size_t n) {
    ssize_t (*next)(int, void *, size_t) =
        (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    struct pollfd in = {.fd = fd, .events = POLLIN};

    if (fd == 0 && poll(&in, 1, 0) == 0) /* it would wait */
        at("wait");
    return next(fd, to, n);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask) {
    int (*next)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) =
        (int (*)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))dlsym(
            RTLD_NEXT, "ppoll");

    if (n && fds->fd == 0 && poll(fds, n, 0) == 0)
        at("wait");
    return next(fds, n, timeout, mask);
}

int tcsetattr(int fd, int when, const struct termios *to) {
    int (*next)(int, int, const struct termios *) =
        (int (*)(int, int, const struct termios *))dlsym(RTLD_NEXT, "tcsetattr");

    at("edit");
    return next(fd, when, to);
}
