/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - seccomp: finds out whether a filter would kill a process for a system call that the agent makes in it.
 *
 *     const char *call = filter_kills(0);         // this process. NULL: no filter, or one that allows them or answers with an error
 *     rc = filter_judge_thread(tid, &seen, &call); // a thread of another process, that we trace
 *
 * A container's filter makes forbidden calls return an error, which each caller expects; a sandbox's filter may kill the process (that of
 * systemd's SystemCallFilter does). The kernel does not tell a process which kind it has. So a hidden child process makes the calls first;
 * the more memory the process has, the longer that fork takes. A tracer can read the filter: it runs the BPF program for the number of each call instead.
 */
#ifndef PROBING_TRACES_FILTER_H
#define PROBING_TRACES_FILTER_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns the name of the first call that this process's filters kill for, or NULL; "mmap" or "clone" also when these merely fail. Call it before
 * any other function of the agent, and in fork's child handler. With `known` this thread's filters have been judged already: nothing is tried then,
 * nor later in a forked child that has no more filters. */
const char *filter_kills(int known);

/* Returns the name of a call for which the filter may kill, whatever the arguments, or NULL; "malloc" when there is no memory.
 * "restart_syscall" is reported before all others: the kernel makes it when a thread that waited with a timeout continues after a stop. */
const char *filter_judge(const struct sock_filter *code, size_t n);

/* Hashes of filters known to allow all calls; most threads of a process have the same filters. {0} at first. */
struct filter_seen {
    unsigned n;
    uint64_t hash[64];
};
/* Judges all filters of a stopped thread that we trace. *call must be NULL; it gets the name as from filter_judge(). Returns 0, or -errno:
 * -EACCES, as the kernel shows filters to root alone, and only to a process that has no filter itself. */
int filter_judge_thread(pid_t tid, struct filter_seen *seen, const char **call);

#endif
