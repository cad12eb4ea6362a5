/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - seccomp: whether a filter would kill a process for a system call that the agent makes in it.
 *
 *     const char *call = filter_kills(0);         // this process. NULL: no filter, or one that allows them or answers with an error
 *     rc = filter_judge_thread(tid, &seen, &call); // a thread of another process, that we trace
 *
 * A container's filter answers with an error, which each caller expects; a sandbox's may kill (systemd's SystemCallFilter does).
 * The kernel does not tell a process which of them it has. So a child that nobody sees makes the calls first; its fork takes as long as
 * the process has memory. Who can read the filter runs its program with the number of each call instead.
 */
#ifndef PROBING_TRACES_FILTER_H
#define PROBING_TRACES_FILTER_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The name of the call; before any other function of the agent's, and in fork's child handler too. `known`: this thread's filters
 * have been judged; nothing is tried, now or in a forked child that has no more of them. */
const char *filter_kills(int known);

/* The name of a call for which the filter may kill, with whatever arguments. "restart_syscall" is named before all others: the kernel
 * makes it where a thread that waited with a timeout goes on after a stop. "malloc": no memory. */
const char *filter_judge(const struct sock_filter *code, size_t n);

/* Filters that allow all: most threads of a process have the same ones. {0} at first. */
struct filter_seen {
    unsigned n;
    uint64_t hash[64];
};
/* The same of all filters of a thread that we trace and that stands still, in *call, which is NULL. 0, or -errno: -EACCES, they are shown to
 * root alone, and only outside of all filters. */
int filter_judge_thread(pid_t tid, struct filter_seen *seen, const char **call);

#endif
