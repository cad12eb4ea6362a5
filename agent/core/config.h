/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the configuration that the agent is given at its start (agent.h lists it), and reading the environment. The settings,
 * which may change later, are passed on to settings.h.
 *
 *     struct agent_config c;
 *     config_load(&c, conf_text_or_NULL);      // never fails: bad values give defaults and a complaint
 *     for (i < c.ncomplaints) note(c.complaints[i]);
 *
 * The environment is read with process_vm_readv(), because another thread of the target may call
 * setenv() meanwhile. Nothing here allocates. Not async-signal-safe.
 */
#ifndef PROBING_AGENT_CONFIG_H
#define PROBING_AGENT_CONFIG_H

#include "traces/run.h"

#define CONFIG_PATH       4096
#define CONFIG_COMPLAINTS 8

struct agent_config {
    char trace[CONFIG_PATH]; /* absolute; no '/' at the end */
    int trace_is_dir;
    uint32_t main_pid; /* 0: not given */
    int first; /* first of its run, or with its own FILE: moves old traces away (traces/run.h) */
    char session[128];
    char run_dir[CONFIG_PATH], xdg[CONFIG_PATH]; /* PROBING_RUN_DIR and XDG_RUNTIME_DIR, or "" */
    int passive;                                 /* only answer requests, record nothing */
    unsigned ncomplaints;
    char complaints[CONFIG_COMPLAINTS][576]; /* SETTING_WHY, and the name of a variable */
};

/* The run, and this process's ranks in it as given by the launcher (torchrun, Slurm, Open MPI); -1: not known. */
struct agent_ranks {
    int32_t rank, local_rank, world_size;
    char role[16], master[100]; /* role.h fills them in */
    struct run_id id;
};

/* Fills in c and all settings: from `conf` (KEY=VALUE lines, or NULL), else from the environment, else the defaults. */
void config_load(struct agent_config *c, const char *conf);
void config_ranks(struct agent_ranks *r);
/* Returns this process's run: PROBING_RUN at the start of its recording; a forked child has its parent's. Callable from any thread. */
const char *config_run(void);
/* Copies the value of an environment variable. Returns 1; 0 when it is not set; -E2BIG when it is longer than n - 1. */
int config_env(const char *name, char *buf, size_t n);
/* Calls fn with a copy of each NAME=VALUE entry of the environment, except those longer than 4 KiB. */
void config_env_each(void (*fn)(char *entry, void *arg), void *arg);

#endif
