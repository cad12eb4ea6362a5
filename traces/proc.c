/* SPDX-License-Identifier: Apache-2.0 */
#include "proc.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "hash.h"

/* ---- small files ---- */

ssize_t proc_file(pid_t pid, pid_t tid, const char *name, char *buf, size_t n) {
    char path[96];
    ssize_t r;
    int fd;

    if (tid)
        snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, name);
    else
        snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    errno = fd < 0 ? errno : 0;
    r = (ssize_t)proc_read_fd(fd, buf, n);
    r = r == 0 ? -errno : r; /* 0 bytes without an error: the file is empty */
    if (fd >= 0)
        close(fd);
    return r;
}

int proc_status(pid_t pid, pid_t tid, const char *field, char *buf, size_t n) {
    char all[8192], *value;
    ssize_t r = proc_file(pid, tid, "status", all, sizeof all);

    if (r < 0)
        return (int)r;
    value = proc_value(all, field, ":\t ");
    if (value)
        snprintf(buf, n, "%.*s", (int)strcspn(value, "\n"), value);
    return value ? 0 : -ENOENT;
}

uint64_t proc_status_number(pid_t pid, pid_t tid, const char *field, int base) {
    char text[32];

    return proc_status(pid, tid, field, text, sizeof text) == 0 ? strtoull(text, NULL, base) : 0;
}

long proc_filters(pid_t pid, pid_t tid) {
    char buf[32];
    int mode = proc_status(pid, tid, "Seccomp", buf, sizeof buf) < 0 ? 0 : atoi(buf);

    if (mode < 2) /* 1 is strict mode */
        return -mode;
    return proc_status(pid, tid, "Seccomp_filters", buf, sizeof buf) < 0 ? -2 : atol(buf);
}

pid_t proc_own_id(pid_t pid, pid_t tid) {
    char ids[256], *last;

    if (proc_status(pid, tid, "NSpid", ids, sizeof ids) < 0)
        return tid ? tid : pid;
    last = strrchr(ids, '\t');
    return (pid_t)strtol(last ? last + 1 : ids, NULL, 10);
}

void proc_boot_id(char *buf, size_t n) {
    proc_read_file("/proc/sys/kernel/random/boot_id", buf, n);
    buf[strcspn(buf, "\n")] = '\0';
}

int proc_is_boot(const char *id) {
    enum { NONE, BEING_KEPT, KEPT };
    static char kept[40];
    static uint32_t state; /* (a) */
    char now[sizeof kept] = "";
    uint32_t none = NONE;

    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == KEPT)
        return strcmp(id, kept) == 0;
    proc_boot_id(now, sizeof now);
    if (*now && __atomic_compare_exchange_n(&state, &none, BEING_KEPT, 0, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED)) {
        memcpy(kept, now, sizeof kept);
        __atomic_store_n(&state, KEPT, __ATOMIC_RELEASE);
    }
    return strcmp(id, now) == 0;
}

uint64_t proc_namespace(pid_t pid, const char *kind) {
    char path[64] = "/proc/self/ns/";
    struct stat st;

    if (pid)
        snprintf(path, sizeof path, "/proc/%d/ns/", pid);
    strcat(path, kind);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

int proc_same_namespace(pid_t pid, const char *kind) {
    uint64_t ours = proc_namespace(0, kind), theirs = proc_namespace(pid, kind);

    return ours == theirs || !ours || !theirs;
}

int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state) {
    char all[1024], *open_, *close_;
    ssize_t r = proc_file(pid, tid, "stat", all, sizeof all);

    if (r < 0)
        return (int)r;
    open_ = strchr(all, '(');
    close_ = strrchr(all, ')'); /* a thread's name may contain ')' */
    if (!open_ || !close_ || close_ < open_ || close_[1] != ' ')
        return -EBADMSG;
    *close_ = 0;
    if (name)
        snprintf(name, n, "%s", open_ + 1);
    if (state)
        *state = close_[2];
    return 0;
}

int proc_is_running(pid_t pid) {
    char state;

    return proc_task(pid, 0, NULL, 0, &state) == 0 && !proc_is_over(state);
}

int proc_began_as(pid_t pid, uint64_t *ticks, char *state) {
    char stat[1024], *at, *as;
    ssize_t r = proc_file(pid, 0, "stat", stat, sizeof stat);

    at = r > 0 ? proc_stat_field(stat, 22) : NULL;
    as = at ? proc_stat_field(stat, 3) : NULL;
    if (!as)
        return r < 0 ? (int)r : -ESRCH;
    *ticks = strtoull(at, NULL, 10);
    *state = *as;
    return 0;
}

int proc_began(pid_t pid, uint64_t *ticks) {
    char state;

    return proc_began_as(pid, ticks, &state);
}

static int ascending(const void *a, const void *b) {
    return *(const pid_t *)a < *(const pid_t *)b ? -1 : 1;
}

ssize_t proc_tids(pid_t pid, pid_t **out) {
    char name[64];
    size_t n = 0;
    pid_t *v = NULL;
    struct dirent *e;
    int rc = 0;
    DIR *d;

    *out = NULL;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    d = opendir(name);
    if (!d)
        return errno == ENOENT ? -ESRCH : -errno;
    while (rc == 0 && (e = readdir(d))) {
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
        if (tid > 0 && (rc = array_grow(&v, n, sizeof *v)) == 0)
            v[n++] = tid;
    }
    closedir(d);
    if (rc < 0) {
        free(v);
        return rc;
    }
    if (n)
        qsort(v, n, sizeof *v, ascending);
    *out = v;
    return (ssize_t)n;
}

int proc_link(pid_t pid, const char *what, char *buf, size_t n) {
    char name[64];
    ssize_t r;

    snprintf(name, sizeof name, "/proc/%d/%s", pid, what);
    r = readlink(name, buf, n - 1);
    if (r < 0)
        return -errno;
    buf[r] = 0;
    return 0;
}

int proc_environ(pid_t pid, const char *var, char *buf, size_t n) {
    size_t cap = 1 << 20, len = strlen(var);
    char *all = malloc(cap);
    int rc = -ENOENT;
    ssize_t r;

    if (!all)
        return -ENOMEM;
    r = proc_file(pid, 0, "environ", all, cap);
    if (r < 0)
        rc = (int)r;
    for (char *p = all; r > 0 && p < all + r; p += strlen(p) + 1) {
        if (strncmp(p, var, len) == 0 && p[len] == '=') {
            snprintf(buf, n, "%s", p + len + 1);
            rc = 0;
            break;
        }
    }
    free(all);
    return rc;
}

/* ---- memory ---- */

/* The part of proc_image() that is read from a thread's memory. */
static int program_of(pid_t pid, pid_t tid, uint64_t *id) {
    uint64_t auxv[128] = {0}, random[2] = {0}, h = HASH_START;
    ssize_t r = proc_file(pid, tid, "auxv", (char *)auxv, sizeof auxv);
    int rc = r < 0 ? (int)r : -ESRCH; /* there is none in the middle of an exec */

    for (size_t i = 0; r > 0 && i + 1 < sizeof auxv / sizeof *auxv && auxv[i] != AT_NULL; i += 2) {
        if (auxv[i] == AT_RANDOM)
            rc = proc_read(tid, auxv[i + 1], random, sizeof random);
        h = hash_step(h, auxv[i + 1]);
    }
    *id = hash_step(hash_step(h, random[0]), random[1]);
    return rc;
}

int proc_image(pid_t pid, uint64_t id[2]) {
    pid_t *tids = NULL;
    int rc = proc_began(pid, &id[0]);
    ssize_t n;

    if (rc < 0)
        return rc == -ENOENT ? -ESRCH : rc;
    rc = program_of(pid, pid, &id[1]);
    /* The main thread has no memory when it has ended, or when the exec of another thread has ended it. */
    n = rc == -ESRCH ? proc_tids(pid, &tids) : 0;
    for (ssize_t i = 0; i < n && rc < 0; i++)
        rc = tids[i] != pid ? program_of(pid, tids[i], &id[1]) : rc;
    free(tids);
    return rc;
}

/* The text is "running"; "NR ARG ARG ARG ARG ARG ARG SP PC"; or "-1 SP PC". */
int proc_call(const char *text, struct proc_call *out) {
    char *end, *pc = strrchr(text, ' '), *sp = pc;
    *out = (struct proc_call){.number = strtol(text, &end, 10)};
    while (sp && sp > text && *--sp != ' ')
        ;
    if (end == text || !sp || *sp != ' ')
        return 0;
    out->first = out->number < 0 ? 0 : strtoull(end, NULL, 16);
    out->sp = strtoull(sp, NULL, 16);
    out->pc = strtoull(pc, NULL, 16);
    return 1;
}

int proc_read(pid_t pid, uint64_t addr, void *buf, size_t n) {
    struct iovec here = {buf, n}, there = {(void *)(uintptr_t)addr, n};

    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}

int proc_write(pid_t pid, uint64_t addr, const void *buf, size_t n) {
    struct iovec here = {(void *)(uintptr_t)buf, n}, there = {(void *)(uintptr_t)addr, n};

    return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}
