/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the agent's settings (agent.h lists them) and the environment that they come from.
 *
 *     struct agent_config c;
 *     config_load(&c, conf_text_or_NULL);      // never fails: bad values give defaults and a complaint
 *     for (i < c.ncomplaints) note(c.complaints[i]);
 *
 * The environment is read through process_vm_readv, because another thread of the target may be
 * in setenv() at this moment. Nothing here allocates. Not async-signal-safe.
 */
#ifndef PROBING_AGENT_CONFIG_H
#define PROBING_AGENT_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#define CONFIG_PATH       4096
#define CONFIG_COMPLAINTS 8

struct agent_config {
    char trace[CONFIG_PATH]; /* absolute; no '/' at the end */
    int trace_is_dir;
    uint32_t main_pid; /* 0: not said */
    char session[128];
    char run_dir[CONFIG_PATH]; /* "": live_run_dir() decides */
    uint64_t period_ns;        /* sampling period; 0 = sampler off */
    int native;
    uint64_t metrics_ns; /* 0 = metrics off */
    unsigned ncomplaints;
    char complaints[CONFIG_COMPLAINTS][192];
};

/* Ranks of a distributed run as the launchers say them (torchrun, Slurm, Open MPI); -1 = not known. */
struct agent_ranks {
    int32_t rank, local_rank, world_size;
};

/* Fills c from `conf` (KEY=VALUE lines, NULL for none), then the environment, then the defaults. */
void config_load(struct agent_config *c, const char *conf);
void config_ranks(struct agent_ranks *r);
/* Copies the variable's value: 1; 0 when it is not set; -E2BIG when it is longer than n - 1. */
int config_env(const char *name, char *buf, size_t n);
/* "0.01" -> 10000000 ns. 0, or -EINVAL: not a number, or not 0 and outside min..max seconds. */
int config_seconds(const char *text, double min, double max, uint64_t *ns);
/* "0" or "1". 0 or -EINVAL. */
int config_flag(const char *text, int *out);

#define CONFIG_SAMPLE_MIN  0.001
#define CONFIG_METRICS_MIN 0.1
#define CONFIG_MAX         3600.0

#endif
