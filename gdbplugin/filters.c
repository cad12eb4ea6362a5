/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp: finds out whether the filters of a process's threads let the agent in. */
#include <sys/ptrace.h>

#include "inject.h"
#include "text.h"
#include "traces/filter.h"

#define STAND_NS 2000000000u /* as long as native_load() tries */

/* Reads the filters of the running process, in one stop. Returns 0 with filter_judge()'s answer in *call, or -errno. */
static int judge(struct inject *in, const char **call, char **why) {
    uint64_t deadline = sys_now() + STAND_NS;
    struct filter_seen seen = {0};
    struct stop s;
    int rc;

    while ((rc = inject_stand(in, &s, why)) == -EAGAIN && sys_now() < deadline)
        sys_sleep(10 * SYS_MS);
    if (rc == -EAGAIN)
        return fail(why, rc, "%s; nothing was done to process %d, try again", in->why, in->pid);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < s.n && rc == 0 && !*call; i++)
        if (proc_filters(in->pid, s.v[i].tid))
            rc = filter_judge_thread(s.v[i].tid, &seen, call);
    /* For a thread in state ERESTART_RESTARTBLOCK the kernel would call restart_syscall once this stop ends. */
    for (size_t i = 0; i < s.n && *call && !strcmp(*call, "restart_syscall"); i++) {
        struct user_regs_struct r = s.v[i].regs;
        if ((long)r.orig_rax < 0 || (long)r.rax != -516) /* ERESTART_RESTARTBLOCK */
            continue;
        r.orig_rax = (uint64_t)-1;
        r.rax = (uint64_t)-EINTR;
        ptrace(PTRACE_SETREGS, s.v[i].tid, NULL, &r);
    }
    inject_release(in, &s);
    return rc;
}

int filters_allow(struct inject *in, char **why) {
    long own = proc_filters(getpid(), (pid_t)syscall(SYS_gettid));
    int same = own && proc_same_namespace(in->pid, "pid"), rc = -EACCES, strict = 0;
    const char *call = NULL;
    AUTO_FREE pid_t *tids;

    for (ssize_t i = 0, n = proc_tids(in->pid, &tids); i < n; i++) {
        long filters = proc_filters(in->pid, tids[i]);
        in->pre.code.filtered |= filters != 0;
        same &= filters == own;
        strict |= filters == -1;
    }
    if (!in->pre.code.filtered || in->flags & INSPECT_FORCE)
        return 0;
    if (strict)
        call = "any but read, write and exit", rc = 0;
    else if (same) /* our container's filters: we are under them ourselves */
        call = filter_kills(0), rc = 0;
    else if (!own && geteuid() == 0)
        rc = judge(in, &call, why);
    in->judged = rc == 0 && own >= 0;
    if (rc == -EACCES || rc == -EIO || rc == -EINVAL) /* no permission, or not in this kernel */
        return fail(why, -EPERM,
                    "process %d runs under a seccomp filter that may end it, and cannot be read "
                    "here: inject as the host's root, in its container, or with --force",
                    in->pid);
    if (rc == 0 && call)
        return fail(why, -EPERM,
                    "process %d runs under a seccomp filter that would end it for a call of the "
                    "agent's (%s): --force injects all the same",
                    in->pid, call);
    return rc;
}
