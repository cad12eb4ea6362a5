/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - which file a process's trace goes to (agent.h says the rule).
 *
 *     for (n = 1; names_trace(&cfg, host, rank, pid, main, n, buf, sizeof buf) == 0; n++)
 *         if (writer_open(...buf...) != -EEXIST) break;
 */
#ifndef PROBING_AGENT_NAMES_H
#define PROBING_AGENT_NAMES_H

#include <stddef.h>

#include "agent/core/config.h"

/* The n-th choice (1, 2, ... at most NAMES_TRIES) for the trace path. Makes the directory FILE.d or DIR when it
 * is missing. `is_main`: this is the process that FILE itself is for. 0; -ENAMETOOLONG; -ENOSPC when
 * all choices are used up; else -errno of mkdir. */
#define NAMES_TRIES 1000
int names_trace(const struct agent_config *c, const char *host, int rank, unsigned pid, int is_main,
                unsigned n, char *buf, size_t size);

/* HOST[-rRANK]-PID: what a process's trace is named. */
void names_process(const char *host, int rank, unsigned pid, char *buf, size_t size);

#endif
