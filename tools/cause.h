/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.h - finds out what killed a process that could not report it itself.
 *
 *     int signal = cause_signal(pid);                 // before its trace is finished
 *     int rc = cause_finish(live, signal, &done);
 *     char why[CAUSE_TEXT];
 *     if (cause_find(trace, pid, start, signal, why)) complete_fact(trace, "end", "cause", why);
 */
#ifndef PROBING_TOOLS_CAUSE_H
#define PROBING_TOOLS_CAUSE_H

#include <stdint.h>

#include "../writer/writer.h"

#define CAUSE_TEXT 160
#define CAUSE_NONE                                                                                 \
    (-1) /* no signal: it ended itself, by a system call that the agent does not see */

/* Returns the signal that killed a process (given by its id here) that nobody has waited for yet; CAUSE_NONE; or 0: not known. */
int cause_signal(int pid);
/* Calls writer_finish(), whatever cause_signal() returned. */
int cause_finish(const char *live, int signal, struct writer_finished *done);
/*
 * Decides whether the kernel killed the process for lack of memory: by the kernel's log where it can be read, else by the OOM counter of
 * its cgroup, when that has risen since it was recorded (fact oom_kills). start: ns of CLOCK_MONOTONIC. Returns 1, with a few words in
 * `why`, or 0.
 */
int cause_find(const char *trace, int pid, uint64_t start, int signal, char why[CAUSE_TEXT]);

#endif
