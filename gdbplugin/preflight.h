/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.h - what must be true before anything is done to a process, found out without touching it.
 */
#ifndef PROBING_INSPECT_PREFLIGHT_H
#define PROBING_INSPECT_PREFLIGHT_H

#include "call.h"
#include "proc.h"

struct preflight {
    uid_t uid;
    gid_t gid;
    uid_t uid_there; /* as the target itself sees it */
    pid_t pid_there;
    char root[64];    /* "/proc/PID/root" where the target sees other files than we, else "" */
    char cwd[4096];   /* as the target has it */
    uint64_t dlopen;  /* addresses in the target */
    uint64_t dlerror; /* 0: not found */
    uint64_t dlopen_flags;
    /* The C library's allocator: also the parts of it that have no name. Since 2.42 malloc jumps into such, and is seen
     * in no stack then. */
    uint64_t malloc_start, malloc_end;
    struct call_code code;
};

/* 0, or -errno with *why (malloc()ed): what stands against it and what to do. */
int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why);

#endif
