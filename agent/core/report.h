/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - tells probing-record that a process of its run cannot be recorded: probing-record prints the line, the process itself
 * prints nothing. The line goes into a pipe of probing-record, PROBING_REPORT=PID:FD:INODE, opened through /proc, so that the
 * program inherits no descriptor. Never blocks; does nothing where there is no such pipe.
 */
#ifndef PROBING_AGENT_REPORT_H
#define PROBING_AGENT_REPORT_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void report(const char *where, const char *what, const char *of, const char *why) {
    char path[64], line[PIPE_BUF];
    unsigned long pid, fd, inode;
    struct stat st;
    if (!where || sscanf(where, "%lu:%lu:%lu", &pid, &fd, &inode) != 3)
        return;
    snprintf(path, sizeof path, "/proc/%lu/fd/%lu", pid, fd);
    /* Another process may have that pid by now (or in another pid namespace): its file must not be written to. */
    if (stat(path, &st) || !S_ISFIFO(st.st_mode) || st.st_ino != inode)
        return;
    int to = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    int n = snprintf(line, sizeof line, "process %d is not recorded: %s (%.1000s): %.1000s\n",
                     (int)getpid(), what, of, why);
    if (to >= 0) {
        (void)!write(to, line, (size_t)n);
        close(to);
    }
}

#endif
