/* SPDX-License-Identifier: Apache-2.0 */
#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"

char *say(const char *fmt, ...) {
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        s = NULL;
    va_end(ap);
    return s;
}

char *say_not_permitted(pid_t pid) {
    char tracer[32] = "0", uids[128] = "", comm[64] = "?";
    unsigned uid = 0;
    pid_t by;

    proc_status(pid, 0, "TracerPid", tracer, sizeof tracer);
    by = (pid_t)strtol(tracer, NULL, 10);
    if (by > 0) {
        proc_task(by, by, comm, sizeof comm, NULL);
        return say("process %d is traced by process %d (%s): end that first", pid, by, comm);
    }
    if (proc_status(pid, 0, "Uid", uids, sizeof uids) == 0)
        uid = (unsigned)strtoul(uids, NULL, 10);
    if (geteuid() == 0)
        return say(
            "no permission to trace process %d, not even as root: CAP_SYS_PTRACE is missing here (a "
            "container without it), the process is in another user namespace, or Yama forbids it "
            "(kernel.yama.ptrace_scope=3)",
            pid);
    if (uid != geteuid())
        return say(
            "no permission to trace process %d: it belongs to user %u; become that user or root",
            pid, uid);
    return say("no permission to trace process %d: try as root, or allow it with sysctl "
               "kernel.yama.ptrace_scope=0",
               pid);
}

char *say_stop(pid_t pid, int rc, const struct stop *s) {
    switch (rc) {
    case -ESRCH:
        return say("there is no process %d", pid);
    case -EPERM:
    case -EACCES:
        return say_not_permitted(pid);
    case -ETIMEDOUT:
        return say("thread %d of process %d does not stop: it is in an uninterruptible system call "
                   "(see /proc/%d/task/%d/stack)",
                   s->stuck, pid, pid, s->stuck);
    default:
        return say("cannot stop process %d: %s", pid, strerror(-rc));
    }
}
