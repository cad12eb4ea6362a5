/* SPDX-License-Identifier: Apache-2.0 */
/*
 * role.h - what part this process has in a distributed run: its rank, and whether it launches, trains or loads data.
 *
 *     role_find(&ranks, &python, how);          // ranks.rank, .local_rank, .world_size, .role, .master
 *
 * Ranks come from the environment (torchrun, Slurm, Open MPI), else from torch.distributed itself, once somebody who holds
 * the GIL has asked it (role_set_ranks). Roles: "launcher" (torchrun and the like, without a rank), "worker" (has a
 * rank of its own), "dataloader" (runs a DataLoader's worker loop: seen on its stack), "" for any other.
 */
#ifndef PROBING_AGENT_ROLE_H
#define PROBING_AGENT_ROLE_H

#include "agent/core/config.h"
#include "agent/core/python.h"

/* Service thread. `py` may be not found yet (version 0); `how` as in the process record. Reads the process's own memory by
 * system calls only. All of *r is set, padding included, so that two can be compared with memcmp. */
void role_find(struct agent_ranks *r, const struct agent_python *py, const char *how);
/* What torch.distributed says. Any thread. */
void role_set_ranks(int32_t rank, int32_t world_size);
/* Whether the environment or role_set_ranks() gave one. Any thread. */
int role_has_rank(void);
/* Whether the last role_find() said "worker". Service thread. */
int role_is_worker(void);
/* In a forked child: the rank so far is the parent's. Async-signal-safe. */
void role_after_fork(void);

#endif
