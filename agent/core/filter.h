/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - seccomp: whether a filter would kill this process for a system call that the agent makes.
 *
 *     const char *call = filter_kills();      // NULL: no filter, or one that allows them or answers with an error
 *
 * A container's filter answers with an error, which each caller expects; a sandbox's may kill (systemd's SystemCallFilter does).
 * The kernel does not say which, so a child that nobody sees makes the calls first.
 */
#ifndef PROBING_AGENT_FILTER_H
#define PROBING_AGENT_FILTER_H

/* The name of the call; before any other function of the agent's. In fork's child handler too. */
const char *filter_kills(void);

#endif
