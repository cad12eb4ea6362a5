/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pywalk/find.h"
#include "agent/pywalk/image.h"
#include "call.h"
#include "inspect.h"
#include "say.h"

/* __libc_dlopen_mode before glibc 2.34 wants this beside RTLD_NOW. */
#define RTLD_DLOPEN 0x80000000u
/* Bytes of the C library's allocator, where its neighbours do not tell. */
#define MALLOC_SIZE   0x8000u
#define MALLOC_BEFORE 0x4000u

static int state(pid_t pid, char **why) {
    pid_t *tids = NULL;
    char s = 0;

    if (proc_task(pid, pid, NULL, 0, &s) < 0) {
        *why = say("there is no process %d", pid);
        return -ESRCH;
    }
    if ((s == 'Z' || s == 'X') && proc_tids(pid, &tids) > 1) {
        free(tids);
        *why =
            say("the main thread of process %d has ended, others go on: it cannot be entered", pid);
        return -ESRCH;
    }
    free(tids);
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

static int surroundings(struct preflight *p, pid_t pid, unsigned flags, char **why) {
    char buf[256];

    if (proc_status(pid, 0, "Seccomp", buf, sizeof buf) == 0 && strtol(buf, NULL, 10) != 0) {
        p->code.filtered = 1;
        if (!(flags & INSPECT_FORCE)) {
            *why = say(
                "process %d runs under a seccomp filter, which may kill it for a system call of "
                "the agent's: inject with --force if you know that it allows them",
                pid);
            return -EPERM;
        }
    }
    if (proc_status(pid, 0, "x86_Thread_features", buf, sizeof buf) == 0 && strstr(buf, "shstk")) {
        *why = say("process %d has a shadow stack, which forbids the call: start it with "
                   "probing-record",
                   pid);
        return -ENOTSUP;
    }
    if (proc_status(pid, 0, "SigIgn", buf, sizeof buf) == 0 &&
        strtoull(buf, NULL, 16) & 1ull << (SIGTRAP - 1))
        p->code.no_steps = 1;
    return 0;
}

/* The last number of NSpid: its own view of its pid. */
static pid_t own_pid(pid_t pid) {
    char buf[256], *last;

    if (proc_status(pid, 0, "NSpid", buf, sizeof buf) < 0)
        return pid;
    last = strrchr(buf, '\t');
    return (pid_t)strtol(last ? last + 1 : buf, NULL, 10);
}

/* Its own view of its user id: a user namespace maps ranges "there here count". */
static uid_t own_uid(pid_t pid, uid_t uid) {
    char name[64];
    unsigned long there, here, count;
    uid_t found = uid;
    FILE *f;

    snprintf(name, sizeof name, "/proc/%d/uid_map", pid);
    f = fopen(name, "re");
    while (f && fscanf(f, "%lu %lu %lu", &there, &here, &count) == 3) {
        if (uid >= here && uid - here < count)
            found = (uid_t)(there + (uid - here));
    }
    if (f)
        fclose(f);
    return found;
}

/* Whose it is and where it lives. */
static int place(struct preflight *p, pid_t pid, char **why) {
    char buf[128], here[4096] = "", there[4096] = "", mine[4096];
    unsigned real, eff;
    int same_ns;

    if (proc_status(pid, 0, "Uid", buf, sizeof buf) < 0 || sscanf(buf, "%u %u", &real, &eff) != 2 ||
        proc_link(pid, "cwd", p->cwd, sizeof p->cwd) < 0) {
        struct stop none = {.pid = pid};
        *why = say_stop(pid, -EPERM, &none);
        return -EPERM;
    }
    p->uid = eff;
    if (proc_status(pid, 0, "Gid", buf, sizeof buf) == 0 && sscanf(buf, "%u %u", &real, &eff) == 2)
        p->gid = eff;
    p->pid_there = own_pid(pid);
    p->uid_there = own_uid(pid, p->uid);
    same_ns = proc_link(getpid(), "ns/mnt", here, sizeof here) < 0 ||
              proc_link(pid, "ns/mnt", there, sizeof there) < 0 || strcmp(here, there) == 0;
    if (proc_link(pid, "root", there, sizeof there) < 0 ||
        proc_link(getpid(), "root", mine, sizeof mine) < 0)
        return 0;
    if (same_ns && strcmp(there, mine) == 0)
        return 0;
    snprintf(p->root, sizeof p->root, "/proc/%d/root", pid);
    /* A changed root shows in our view of its paths. */
    if (strcmp(there, "/") && strncmp(p->cwd, there, strlen(there)) == 0)
        memmove(p->cwd, p->cwd + strlen(there), strlen(p->cwd + strlen(there)) + 1);
    if (!p->cwd[0])
        strcpy(p->cwd, "/");
    return 0;
}

static int symbol(pid_t pid, uint64_t base, const char *name, uint64_t *addr) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)pid};
    struct pywalk_image im;
    int rc = pywalk_image_open(&im, mem, base);

    return rc < 0 ? rc : pywalk_image_symbol(&im, name, addr, NULL);
}

static int is_musl(const struct proc_maps *maps) {
    for (size_t i = 0; i < maps->n; i++) {
        if (strstr(maps->v[i].path, "musl"))
            return 1;
    }
    return proc_maps_library(maps, "libc.so") !=
           NULL; /* /lib/libc.so: musl's loader and library in one */
}

static int addresses(struct preflight *p, pid_t pid, const struct proc_maps *maps, char **why) {
    const struct proc_map *libc = proc_maps_library(maps, "libc.so.6"), *dl;
    uint64_t at;

    if (!libc)
        libc = proc_maps_library(maps, "libc-2.*");
    if (!libc) {
        if (is_musl(maps))
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
    /* One object file: from its first exported function to the first of the next. */
    if (symbol(pid, libc->start, "malloc", &p->malloc_start) == 0)
        p->malloc_end = p->malloc_start + MALLOC_SIZE;
    if (symbol(pid, libc->start, "__default_morecore", &at) == 0 && at < p->malloc_start &&
        p->malloc_start - at < MALLOC_SIZE)
        p->malloc_start = at;
    else
        p->malloc_start -= p->malloc_start ? MALLOC_BEFORE : 0;
    if (symbol(pid, libc->start, "mcheck_check_all", &at) == 0 && at > p->malloc_start &&
        at - p->malloc_start < 2 * MALLOC_SIZE)
        p->malloc_end = at;
    symbol(pid, libc->start, "__errno_location", &p->code.errno_location);
    /* Before 2.34 it was in libpthread, too; the C library has always had it. */
    if (call_find_restorer(pid, maps, libc->start, &p->code.restorer) < 0) {
        *why = say("no way back found in the code of process %d (%s)", pid, libc->path);
        return -ENOTSUP;
    }
    return 0;
}

/* An agent that reads objects by a layout that is not theirs would harm it; in a program without Python it has nothing
 * to do. -ENODATA: there is none. */
static int python(pid_t pid, unsigned flags, char **why) {
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)pid};
    char exe[4096] = "?";
    struct pywalk_found py;
    int rc = pywalk_find(pid, &py);

    if (rc == -ENOENT && !(flags & INSPECT_FORCE)) {
        proc_link(pid, "exe", exe, sizeof exe);
        *why = say("there is no Python in process %d (%s); --force injects all the same", pid, exe);
        return -ENODATA;
    }
    if (rc < 0 || !pywalk_free_threaded(mem, &py.target))
        return 0;
    *why = say(
        "process %d runs a free-threaded build of CPython %u.%u, which is not supported: run the one with a GIL",
        pid, py.target.version >> 24, py.target.version >> 16 & 255);
    return -ENOTSUP;
}

int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why) {
    int rc;

    *p = (struct preflight){0};
    if ((rc = state(pid, why)) < 0 || (rc = tracer(pid, why)) < 0 ||
        (rc = surroundings(p, pid, flags, why)) < 0 || (rc = place(p, pid, why)) < 0 ||
        (rc = addresses(p, pid, maps, why)) < 0)
        return rc;
    return python(pid, flags, why);
}
