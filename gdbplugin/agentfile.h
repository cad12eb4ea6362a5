/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agentfile.h - the live file of the agent inside a process (writer/live.h), found in its mappings.
 *
 * The process may be another user's, and may change its file or cut it short while we read. So a writable one (for the mailbox)
 * is watched (live_watch), and a text in it may have lost its end.
 */
#ifndef PROBING_INSPECT_AGENTFILE_H
#define PROBING_INSPECT_AGENTFILE_H

#include <sys/types.h>

#include "proc.h"
#include "writer/live.h"

/* Opens it; agentfile_close() ends that. *path (may be NULL) gets n bytes of its name. 0; -ENOENT: no agent in
 * this process; or what live_open() says. */
int agentfile_open(pid_t pid, const struct proc_maps *maps, int writable, struct live **out,
                   char *path, size_t n);
void agentfile_close(struct live *l);

/* Whether the agent was brought in only to be asked (PROBING_PASSIVE, agent.h): it has no trace. */
int agentfile_passive(const struct live *l);

#endif
