/* SPDX-License-Identifier: Apache-2.0 */
/*
 * role.h - the role of this process in a distributed run: its rank, and whether it launches, trains or loads data.
 *
 *     role_find(&ranks, &python, how);          // ranks.rank, .local_rank, .world_size, .role, .master
 *
 * Ranks come from the environment (torchrun, Slurm, Open MPI), else from torch.distributed itself, once a thread that holds
 * the GIL has asked it (role_set_ranks). Roles: "launcher" (torchrun and the like, without a rank), "worker" (has a rank
 * of its own), "dataloader" (its main thread runs a DataLoader's worker loop), "" for any other process.
 */
#ifndef PROBING_AGENT_ROLE_H
#define PROBING_AGENT_ROLE_H

#include "agent/core/config.h"
#include "agent/core/python.h"

/* Finds the ranks and the role. Service thread only. In `py`, Python may be not found yet (version 0); `how` is as in the process record.
 * Reads the process's memory by system calls only. Sets all of *r, padding included, so that two can be compared with memcmp(). */
void role_find(struct agent_ranks *r, const struct agent_python *py, const char *how);
/* Sets the rank and world size that torch.distributed reports. Callable from any thread. */
void role_set_ranks(int32_t rank, int32_t world_size);
/* Returns whether the environment or role_set_ranks() gave a rank. Callable from any thread. */
int role_has_rank(void);
/* Returns whether the last role_find() set the role "worker". Service thread only. */
int role_is_worker(void);
/* To be called in a forked child: the rank known so far becomes the parent's. Async-signal-safe. */
void role_after_fork(void);

#endif
