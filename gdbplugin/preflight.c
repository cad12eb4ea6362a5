/* SPDX-License-Identifier: Apache-2.0 */
#include "inject.h"

#include <dlfcn.h>
#include <signal.h>

#include "agent/pywalk/find.h"
#include "agent/pywalk/image.h"
#include "python.h"
#include "text.h"

/* flag that __libc_dlopen_mode needs besides RTLD_NOW before glibc 2.34 */
#define RTLD_DLOPEN 0x80000000u
/* Assumed size of the C library's allocator, used when its neighbours do not bound it. */
#define MALLOC_SIZE   0x8000u
#define MALLOC_BEFORE 0x4000u

#define EXEC_TRIES 200 /* 5 ms each */
static int state(pid_t pid, char **why) {
    AUTO_FREE pid_t *tids = NULL;
    char s = 0;

    /* During an exec by another thread the main thread counts as ended, until the thread that execs gets a processor again. */
    for (int i = 0; i < EXEC_TRIES; i++) {
        if (proc_task(pid, pid, NULL, 0, &s) < 0)
            return fail(why, -ESRCH, "there is no process %d", pid);
        if (!proc_is_over(s))
            break;
        sys_sleep(5 * SYS_MS);
    }
    /* not -ESRCH if other threads go on, as callers wait for an exec after that */
    if (proc_is_over(s))
        return proc_tids(pid, &tids) > 1
                   ? fail(
                         why, -EBUSY,
                         "the main thread of process %d has ended, others go on: it cannot be entered",
                         pid)
                   : fail(why, -ESRCH,
                          "process %d has ended (a zombie, not yet reaped by its parent)", pid);
    if (s == 'T')
        return fail(why, -EBUSY, "process %d is stopped: continue it first (kill -CONT %d)", pid,
                    pid);
    *why = say_traced(pid);
    return *why ? -EBUSY : 0;
}

static int surroundings(struct preflight *p, pid_t pid, char **why) {
    char buf[256];

    if (proc_status(pid, 0, "x86_Thread_features", buf, sizeof buf) == 0 && strstr(buf, "shstk"))
        return fail(why, -ENOTSUP,
                    "process %d has a shadow stack, which forbids the call: start it with "
                    "probing-record",
                    pid);
    p->code.no_steps = proc_status_number(pid, 0, "SigIgn", 16) >> (SIGTRAP - 1) & 1;
    return 0;
}

/* Finds the user id as the process itself sees it: a user namespace maps ranges "there here count". -EPERM: it has no ids, and can create no file. */
static int own_uid(pid_t pid, uid_t uid, uid_t *own) {
    char text[8192], *line = text;
    unsigned long there, here, count;
    ssize_t n = proc_file(pid, 0, "uid_map", text, sizeof text);

    *own = uid;
    for (int at; n > 0 && sscanf(line, "%lu %lu %lu %n", &there, &here, &count, &at) == 3;
         line += at)
        if (uid - here < count)
            *own = (uid_t)(there + (uid - here));
    return n == 0 ? -EPERM : 0;
}

/* Finds out whose process it is, and its root and working directory. */
static int place(struct preflight *p, pid_t pid, char **why) {
    char buf[128], there[4096], mine[4096];
    unsigned real, eff;

    if (proc_status(pid, 0, "Uid", buf, sizeof buf) < 0 || sscanf(buf, "%u %u", &real, &eff) != 2 ||
        proc_link(pid, "cwd", p->cwd, sizeof p->cwd) < 0) {
        *why = say_not_permitted(pid);
        return -EPERM;
    }
    p->uid = eff;
    if (proc_status(pid, 0, "Gid", buf, sizeof buf) == 0 && sscanf(buf, "%u %u", &real, &eff) == 2)
        p->gid = eff;
    p->pid_there = proc_own_id(pid, 0);
    if (own_uid(pid, p->uid, &p->uid_there) < 0)
        return fail(why, -EPERM,
                    "process %d is in a user namespace without ids: write its uid_map first", pid);
    if (proc_link(pid, "root", there, sizeof there) < 0 ||
        proc_link(getpid(), "root", mine, sizeof mine) < 0 ||
        (proc_same_namespace(pid, "mnt") && strcmp(there, mine) == 0))
        return 0;
    snprintf(p->root, sizeof p->root, "/proc/%d/root", pid);
    /* A changed root is part of the path as we see it. */
    if (strcmp(there, "/") && strncmp(p->cwd, there, strlen(there)) == 0)
        memmove(p->cwd, p->cwd + strlen(there), strlen(p->cwd + strlen(there)) + 1);
    if (!p->cwd[0])
        strcpy(p->cwd, "/");
    return 0;
}

static int addresses(struct preflight *p, pid_t pid, const struct proc_maps *maps, char **why) {
    const struct proc_map *libc =
        proc_maps_library(maps, "libc.so.6") ?: proc_maps_library(maps, "libc-2.*");
    const struct proc_map *dl =
        proc_maps_library(maps, "libdl.so.2") ?: proc_maps_library(maps, "libdl-2.*");
    struct pywalk_image in_libc, in_dl; /* one that cannot be opened has no symbols */
    uint64_t at;

    if (!libc)
        return proc_maps_library(maps, "libc.so") || proc_has_mapped(pid, "musl") > 0
                   ? fail(why, -ENOTSUP,
                          "process %d uses the musl C library; the agent needs glibc", pid)
                   : fail(why, -ENOTSUP,
                          "process %d uses no shared C library (statically linked?): the agent "
                          "cannot be loaded into it",
                          pid);
    pywalk_image_open(&in_libc, pywalk_process(pid), libc->start);
    pywalk_image_open(&in_dl, pywalk_process(pid), dl ? dl->start : 0);
    p->dlopen_flags = RTLD_NOW | RTLD_LOCAL;
    if (pywalk_image_symbol(&in_libc, "dlopen", &p->dlopen, NULL) < 0 &&
        (pywalk_image_symbol(&in_dl, "dlopen", &p->dlopen, NULL) < 0)) {
        p->dlopen_flags |= RTLD_DLOPEN;
        if (pywalk_image_symbol(&in_libc, "__libc_dlopen_mode", &p->dlopen, NULL) < 0)
            return fail(why, -ENOTSUP, "no dlopen found in process %d (%s)", pid, libc->path);
    }
    if (pywalk_image_symbol(&in_libc, "dlerror", &p->dlerror, NULL) < 0)
        pywalk_image_symbol(&in_dl, "dlerror", &p->dlerror, NULL);
    /* The allocator is one object file: from its first exported function to the first one of the next object file. */
    if (pywalk_image_symbol(&in_libc, "malloc", &p->malloc_start, NULL) == 0)
        p->malloc_end = p->malloc_start + MALLOC_SIZE;
    if (pywalk_image_symbol(&in_libc, "__default_morecore", &at, NULL) == 0 &&
        at < p->malloc_start && p->malloc_start - at < MALLOC_SIZE)
        p->malloc_start = at;
    else
        p->malloc_start -= p->malloc_start ? MALLOC_BEFORE : 0;
    if (pywalk_image_symbol(&in_libc, "mcheck_check_all", &at, NULL) == 0 && at > p->malloc_start &&
        at - p->malloc_start < 2 * MALLOC_SIZE)
        p->malloc_end = at;
    pywalk_image_symbol(&in_libc, "__errno_location", &p->code.errno_location, NULL);
    /* Before glibc 2.34 it was in libpthread, too; the C library has always had it. */
    if (call_find_restorer(pid, maps, libc->start, &p->code.restorer) < 0)
        return fail(why, -ENOTSUP, "no way back found in the code of process %d (%s)", pid,
                    libc->path);
    return 0;
}

/* Checks the Python. An agent that reads objects by a wrong layout would harm the process, and has nothing to do in a
 * program without Python, or with one that is not supported. -ENODATA: there is none. */
static int python(struct preflight *p, pid_t pid, unsigned flags, char **why) {
    struct python *py = NULL;
    struct pywalk pw;
    AUTO_FREE char *note = NULL;
    struct origin s;
    int n = 0, rc = origin_running(&s, pid, why);

    if (rc == 0) {
        n = python_find(&py, &s, &note);
        p->has_python = n > 0;
        if (py) { /* also what is known about one that cannot be read */
            p->python = py[0].found.target;
            p->image = py[0].found.image;
        }
        python_free(py, n);
    }
    if (rc == 0 && n == 0 && !note)
        rc = fail(why, -ENODATA,
                  "there is no CPython in process %d (%s); --force injects all the same", pid,
                  s.exe);
    else if (rc < 0 && rc != -EPERM && rc != -EACCES) /* the process ends or execs */
        rc = -ENODATA;
    if (rc == -ENODATA && flags & INSPECT_FORCE) {
        free(*why);
        *why = NULL;
        rc = 0;
    } else if (note && (!p->python.version || pywalk_init(&pw, s.mem, &p->python) == -ENOTSUP)) {
        rc = fail(why, -ENOTSUP, "process %d runs a Python that is not supported (%s)", pid, note);
    }
    origin_close(&s);
    return rc;
}

int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why) {
    int rc;

    *p = (struct preflight){0};
    if ((rc = state(pid, why)) < 0 || (rc = surroundings(p, pid, why)) < 0 ||
        (rc = place(p, pid, why)) < 0 || (rc = addresses(p, pid, maps, why)) < 0)
        return rc;
    return python(p, pid, flags, why);
}
