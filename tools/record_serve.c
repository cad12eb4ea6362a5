/* SPDX-License-Identifier: Apache-2.0 */
#include "record_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

#define BEGIN_MS 10000 /* how long the server may take to print its address */

/* Reads the first line that comes through fd. Returns 0, -EIO if fd ends without one, or -ETIMEDOUT. */
static int first_line(int fd, char *buf, size_t n) {
    struct pollfd p = {fd, POLLIN, 0};
    size_t have = 0;

    while (have < n - 1 && !memchr(buf, '\n', have)) {
        int ready = poll(&p, 1, BEGIN_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t got = ready > 0 ? read(fd, buf + have, n - 1 - have) : -1;
        if (got <= 0)
            return ready > 0 ? -EIO : -ETIMEDOUT;
        have += (size_t)got;
    }
    buf[have] = 0;
    buf[strcspn(buf, "\n")] = 0;
    return 0;
}

static int start(const char *program, const char *where, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    char self[16];
    pid_t pid;

    snprintf(self, sizeof self, "%d", (int)getpid());
    char *const argv[] = {(char *)(uintptr_t)program,
                          (char *)(uintptr_t) "--listen",
                          (char *)(uintptr_t)where,
                          (char *)(uintptr_t) "--port-range",
                          (char *)(uintptr_t) "63",
                          (char *)(uintptr_t) "--until",
                          self,
                          NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID); /* Ctrl-C is for the program alone */
    int rc = -posix_spawn(&pid, program, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return rc;
}

void record_serve(void) {
    const char *port = getenv("PROBING_PORT");
    char program[4096], where[300], line[600] = "";
    int fds[2];

    if (!port || !*port)
        return;
    snprintf(where, sizeof where, "%s%.255s", strchr(port, ':') ? "" : "127.0.0.1:", port);
    int rc = tool_lib("probing-serve", program, sizeof program);
    if (rc == 0 && pipe2(fds, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc == 0) {
        rc = start(program, where, fds[1]);
        close(fds[1]);
        if (rc == 0)
            rc = first_line(fds[0], line, sizeof line);
        close(fds[0]);
    }
    if (rc == 0)
        tool_say("asked at %s", line);
    else if (rc != -EIO) /* -EIO: the server has reported the reason itself */
        tool_say("PROBING_PORT=%s: no server beside the recording: %s", port, strerror(-rc));
}
