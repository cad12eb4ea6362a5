/* SPDX-License-Identifier: Apache-2.0 */
/* find_python.h - the CPython of a process, for test programs: in the first mapping that is one. */
#ifndef PROBING_TESTS_FIND_PYTHON_H
#define PROBING_TESTS_FIND_PYTHON_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/pywalk/find.h"

/* Sets our own glibc's offset of the kernel's thread id in the layout, if it holds for one of the target's threads. */
static inline void confirm_tids(pid_t pid, struct pywalk_mem mem, struct pywalk_found *found) {
    struct pywalk_thread threads[64];
    struct pywalk pw;
    int off = pywalk_find_pthread_tid_off(), n;

    found->target.pthread_tid_off = off > 0 ? (uint64_t)off : 0;
    n = off > 0 && pywalk_init(&pw, mem, &found->target) == 0
            ? pywalk_threads(&pw, threads, 64, NULL)
            : -1;
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/task/%u", (int)pid, threads[i].tid);
        if (threads[i].tid != 0 && access(name, F_OK) == 0)
            return;
    }
    found->target.pthread_tid_off = 0;
}

/* Tries a libpython first, because a program's own symbols may be only a part of Python's. */
static inline int find_python(pid_t pid, struct pywalk_found *found) {
    struct pywalk_mem mem = pywalk_process(pid);
    char name[64], line[4400], path[4200];
    unsigned long long start, offset;
    char c;
    struct iovec local = {&c, 1}, remote = {NULL, 1};
    int rc = -ENOENT;

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT)
        return -errno; /* there is none, or it may not be read */
    for (int pass = 0; pass < 2 && rc != 0; pass++) {
        FILE *maps;
        snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
        maps = fopen(name, "re");
        while (maps && rc != 0 && fgets(line, sizeof line, maps))
            if (sscanf(line, "%llx-%*x r%*3s %llx %*s %*s %4199s", &start, &offset, path) == 3 &&
                path[0] == '/' && offset == 0 && (pass == 1 || strstr(path, "/libpython")))
                rc = pywalk_find_image(mem, start, found);
        if (maps)
            fclose(maps);
    }
    if (rc == 0)
        confirm_tids(pid, mem, found);
    return rc;
}

#endif
