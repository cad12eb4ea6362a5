/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.h - what must be true before anything is done to a process, found out without touching it.
 */
#ifndef PROBING_INSPECT_PREFLIGHT_H
#define PROBING_INSPECT_PREFLIGHT_H

#include "proc.h"

struct preflight {
    uid_t uid;
    gid_t gid;
    char cwd[4096];
    uint64_t dlopen;         /* addresses in the target */
    uint64_t dlerror;        /* 0: not found */
    uint64_t errno_location; /* 0: not found */
    uint64_t dlopen_flags;
    uint64_t trap; /* a byte 0xCC in its code */
};

/* 0, or -errno with *why (malloc()ed): what stands against it and what to do. */
int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why);

#endif
