/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pywalk/image.h"
#include "call.h"
#include "inspect.h"
#include "say.h"

/* __libc_dlopen_mode before glibc 2.34 wants this beside RTLD_NOW. */
#define RTLD_DLOPEN 0x80000000u

static int state(pid_t pid, char **why) {
    char s = 0;

    if (proc_task(pid, pid, NULL, 0, &s) < 0) {
        *why = say("there is no process %d", pid);
        return -ESRCH;
    }
    if (s == 'Z' || s == 'X') {
        *why = say("process %d has ended (a zombie, not yet reaped by its parent)", pid);
        return -ESRCH;
    }
    if (s == 'T') {
        *why = say("process %d is stopped: continue it first (kill -CONT %d)", pid, pid);
        return -EBUSY;
    }
    return 0;
}

static int tracer(pid_t pid, char **why) {
    char buf[32] = "0", comm[64] = "?";
    pid_t by;

    proc_status(pid, 0, "TracerPid", buf, sizeof buf);
    by = (pid_t)strtol(buf, NULL, 10);
    if (by <= 0)
        return 0;
    proc_task(by, by, comm, sizeof comm, NULL);
    *why = say("process %d is traced by process %d (%s): end that first", pid, by, comm);
    return -EBUSY;
}

static int surroundings(pid_t pid, unsigned flags, char **why) {
    char buf[256], here[128], there[128];

    if (proc_status(pid, 0, "Seccomp", buf, sizeof buf) == 0 && strtol(buf, NULL, 10) != 0 &&
        !(flags & INSPECT_FORCE)) {
        *why = say(
            "process %d runs under a seccomp filter, which may kill it for a system call of the "
            "agent's: inject with --force if you know that it allows them",
            pid);
        return -EPERM;
    }
    if (proc_link(getpid(), "ns/mnt", here, sizeof here) == 0 &&
        proc_link(pid, "ns/mnt", there, sizeof there) == 0 && strcmp(here, there)) {
        *why =
            say("process %d is in another mount namespace (a container): run this inside it", pid);
        return -ENOTSUP;
    }
    if (proc_status(pid, 0, "NSpid", buf, sizeof buf) == 0 && strchr(buf, '\t')) {
        *why = say("process %d is in another pid namespace (a container): run this inside it", pid);
        return -ENOTSUP;
    }
    if (proc_status(pid, 0, "SigIgn", buf, sizeof buf) == 0 &&
        strtoull(buf, NULL, 16) & 1ull << (SIGTRAP - 1)) {
        *why = say("process %d ignores SIGTRAP, which the call needs: start it with probing-record",
                   pid);
        return -ENOTSUP;
    }
    return 0;
}

static int symbol(pid_t pid, uint64_t base, const char *name, uint64_t *addr) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)pid};
    struct pywalk_image im;
    int rc = pywalk_image_open(&im, mem, base);

    return rc < 0 ? rc : pywalk_image_symbol(&im, name, addr, NULL);
}

static int addresses(struct preflight *p, pid_t pid, const struct proc_maps *maps, char **why) {
    const struct proc_map *libc = proc_maps_library(maps, "libc.so.6"), *dl;

    if (!libc)
        libc = proc_maps_library(maps, "libc-2.*");
    if (!libc) {
        if (proc_maps_library(maps, "ld-musl*") || proc_maps_library(maps, "libc.musl*"))
            *why = say("process %d uses the musl C library; the agent needs glibc", pid);
        else
            *why =
                say("process %d uses no shared C library (statically linked?): the agent cannot be "
                    "loaded into it",
                    pid);
        return -ENOTSUP;
    }
    dl = proc_maps_library(maps, "libdl.so.2");
    if (!dl)
        dl = proc_maps_library(maps, "libdl-2.*");
    p->dlopen_flags = RTLD_NOW | RTLD_LOCAL;
    if (symbol(pid, libc->start, "dlopen", &p->dlopen) < 0 &&
        (!dl || symbol(pid, dl->start, "dlopen", &p->dlopen) < 0)) {
        p->dlopen_flags |= RTLD_DLOPEN;
        if (symbol(pid, libc->start, "__libc_dlopen_mode", &p->dlopen) < 0) {
            *why = say("no dlopen found in process %d (%s)", pid, libc->path);
            return -ENOTSUP;
        }
    }
    if (symbol(pid, libc->start, "dlerror", &p->dlerror) < 0 && dl)
        symbol(pid, dl->start, "dlerror", &p->dlerror);
    symbol(pid, libc->start, "__errno_location", &p->errno_location);
    if (call_find_trap(pid, maps, libc->start, &p->trap) < 0) {
        *why = say("no way back found in the code of process %d", pid);
        return -ENOTSUP;
    }
    return 0;
}

int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why) {
    unsigned real, eff, saved, fs;
    char buf[128];
    int rc;

    *p = (struct preflight){0};
    if ((rc = state(pid, why)) < 0 || (rc = tracer(pid, why)) < 0 ||
        (rc = surroundings(pid, flags, why)) < 0)
        return rc;
    if (proc_status(pid, 0, "Uid", buf, sizeof buf) < 0 ||
        sscanf(buf, "%u %u %u %u", &real, &eff, &saved, &fs) != 4 ||
        proc_link(pid, "cwd", p->cwd, sizeof p->cwd) < 0) {
        struct stop none = {.pid = pid};
        *why = say_stop(pid, -EPERM, &none);
        return -EPERM;
    }
    p->uid = eff;
    if (proc_status(pid, 0, "Gid", buf, sizeof buf) == 0 && sscanf(buf, "%u %u", &real, &eff) == 2)
        p->gid = eff;
    return addresses(p, pid, maps, why);
}
