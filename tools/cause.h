/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.h - what killed a process that could not say so itself.
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

/* What killed a process (its id here) that nobody has waited for yet; CAUSE_NONE; 0: not known. */
int cause_signal(int pid);
/* writer_finish(), whatever cause_signal() said. */
int cause_finish(const char *live, int signal, struct writer_finished *done);
/*
 * Whether the kernel killed it for memory: by the kernel's log, where that can be read, else by the count of its cgroup, which was
 * recorded (fact oom_kills) and has risen since. start: ns of CLOCK_MONOTONIC. 1 and a few words in `why`, or 0.
 */
int cause_find(const char *trace, int pid, uint64_t start, int signal, char why[CAUSE_TEXT]);

#endif
