/* SPDX-License-Identifier: Apache-2.0 */
/* A live process as a source: running (memory and /proc, nobody is stopped), then perhaps stopped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "origin.h"
#include "say.h"

static ssize_t task_file(pid_t pid, pid_t tid, const char *what, char *buf, size_t n) {
    char name[64];
    ssize_t r;
    int fd;

    snprintf(name, sizeof name, "/proc/%d/task/%d/%s", pid, tid, what);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = read(fd, buf, n - 1);
    r = r < 0 ? -errno : r;
    close(fd);
    buf[r > 0 ? r : 0] = 0;
    return r;
}

/*
 * /proc/PID/task/TID/syscall waits until a sleeping thread has really left its CPU, and says "running" of any other: so all
 * its time is in schedstat then (the kernel adds it up when a thread leaves its CPU). Where the file is
 * missing, nobody is taken for asleep.
 */
void origin_look(struct origin *s, pid_t tid, struct origin_sleep *out) {
    char text[256];
    char *end;

    memset(out, 0, sizeof *out);
    out->call = -1;
    if (task_file(s->pid, tid, "syscall", text, sizeof text) <= 0 || text[0] == 'r')
        return;
    out->call = strtol(text, &end, 10);
    if (end == text)
        return;
    if (out->call >= 0) { /* the six arguments */
        for (int i = 0; i < 6; i++)
            strtoull(end, &end, 16);
    }
    out->sp = strtoull(end, &end, 16);
    out->pc = strtoull(end, &end, 16);
    if (task_file(s->pid, tid, "schedstat", text, sizeof text) <= 0)
        return;
    out->ran_ns = strtoull(text, &end, 10);
    /* a kernel that does not count gives 0 */
    out->asleep = end != text && out->ran_ns != 0 && out->pc != 0;
}

/* Why nothing can be read of it. */
static char *say_unreadable(pid_t pid, int rc) {
    char ppid[32] = "?", state = 0;

    if (rc == -ESRCH || rc == -ENOENT)
        return say("there is no process %d", pid);
    if (proc_task(pid, pid, NULL, 0, &state) == 0 && (state == 'Z' || state == 'X')) {
        proc_status(pid, 0, "PPid", ppid, sizeof ppid);
        return say("process %d has ended: it is a zombie until its parent (process %s) asks for it",
                   pid, ppid);
    }
    if (rc == -EPERM || rc == -EACCES)
        return say_not_permitted(pid);
    return say("process %d cannot be read: %s", pid, strerror(-rc));
}

/* May its memory be read at all? */
static int may_read(struct origin *s, char **why) {
    char link[16], c;
    int rc = 0;

    for (size_t i = 0; i < s->maps.n; i++) {
        if (s->maps.v[i].perms[0] != 'r' || s->maps.v[i].path[0] == '[')
            continue;
        if (proc_read(s->reader, s->maps.v[i].start, &c, 1) == 0)
            return 0;
        rc = -errno;
        if (rc != -EFAULT)
            break;
    }
    if (s->maps.n == 0) {
        /* A kernel thread's exe leads nowhere; that of a process that has just ended is gone as well. */
        char state = 0;
        proc_task(s->pid, s->pid, NULL, 0, &state);
        if (state && state != 'Z' && state != 'X' &&
            proc_link(s->pid, "exe", link, sizeof link) == -ENOENT) {
            *why = say("process %d is a kernel thread: it has no user memory and no stacks here",
                       s->pid);
            return -ENOTSUP;
        }
        rc = rc ? rc : -ECANCELED;
    }
    if (rc < 0)
        *why = say_unreadable(s->pid, rc);
    return rc;
}

/* In a container the process sees other ids. */
static int same_namespace(pid_t pid) {
    char ours[64], theirs[64];

    return proc_link(getpid(), "ns/pid", ours, sizeof ours) < 0 ||
           proc_link(pid, "ns/pid", theirs, sizeof theirs) < 0 || strcmp(ours, theirs) == 0;
}

static pid_t inner_tid(pid_t pid, pid_t tid) {
    char ids[256], *last;

    if (proc_status(pid, tid, "NSpid", ids, sizeof ids) < 0)
        return tid;
    last = strrchr(ids, '\t');
    return (pid_t)strtol(last ? last + 1 : ids, NULL, 10);
}

static int list_threads(struct origin *s) {
    pid_t *tids;
    ssize_t n = proc_tids(s->pid, &tids);
    int rc = 0, same = same_namespace(s->pid);

    if (n < 0)
        return n == -ENOENT ? -ESRCH : (int)n;
    for (ssize_t i = 0; i < n; i++) {
        struct origin_thread *t = origin_add(s);
        if (!t) {
            rc = -ENOMEM;
            break;
        }
        t->tid = tids[i];
        t->inner = same ? t->tid : inner_tid(s->pid, t->tid);
        if (proc_task(s->pid, t->tid, t->name, sizeof t->name, &t->state) < 0)
            s->n--; /* just ended */
    }
    free(tids);
    return rc;
}

/* A main thread that has called pthread_exit() is a zombie without memory; the others have it. */
static void choose_reader(struct origin *s) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].state != 'Z' && s->v[i].state != 'X') {
            s->reader = s->v[i].tid == s->pid ? s->pid : s->v[i].tid;
            return;
        }
    }
}

/* Of any thread's id: the process's. */
static pid_t group_of(pid_t pid) {
    char text[32];
    pid_t group =
        proc_status(pid, 0, "Tgid", text, sizeof text) == 0 ? (pid_t)strtol(text, NULL, 10) : 0;

    return group > 0 ? group : pid;
}

int origin_running(struct origin *s, pid_t pid, char **why) {
    int rc;

    memset(s, 0, sizeof *s);
    *why = NULL;
    s->kind = ORIGIN_RUNNING;
    s->pid = s->reader = group_of(pid);
    rc = list_threads(s);
    if (rc == 0) {
        choose_reader(s);
        rc = proc_maps_read(s->reader, &s->maps);
    }
    if (rc < 0) {
        *why = say_unreadable(pid, rc);
        goto fail;
    }
    rc = may_read(s, why);
    if (rc < 0)
        goto fail;
    s->mem = (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)s->reader};
    if (proc_link(s->reader, "exe", s->exe, sizeof s->exe) < 0)
        s->exe[0] = 0;
    return 0;
fail:
    origin_close(s);
    return rc;
}

int origin_stop(struct origin *s, int borrow, char **why) {
    int rc = borrow ? stop_borrow(&s->stop, s->pid) : stop_seize(&s->stop, s->pid, 1000);

    if (rc < 0) {
        *why = say_stop(s->pid, rc, &s->stop);
        origin_close(s);
        return rc;
    }
    s->stop.pid = s->reader; /* from now on memory alone is asked for by it */
    s->kind = ORIGIN_STOPPED;
    s->mem = (struct pywalk_mem){origin_read, s};
    for (size_t i = 0; i < s->n; i++)
        s->v[i].known = REGS_NONE;
    for (size_t i = 0; i < s->stop.n; i++) {
        struct origin_thread *t = origin_thread(s, s->stop.v[i].tid);
        if (!t) { /* it began after we looked */
            t = origin_add(s);
            if (!t) {
                origin_close(s);
                return -ENOMEM;
            }
            t->tid = t->inner = s->stop.v[i].tid;
            proc_task(s->pid, t->tid, t->name, sizeof t->name, NULL);
        }
        t->known = REGS_ALL;
        t->regs = s->stop.v[i].regs;
    }
    /* Those that ended before the stop are gone for good. */
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].known == REGS_ALL)
            s->v[k++] = s->v[i];
    }
    s->n = k;
    return 0;
}

uint64_t origin_go(struct origin *s) {
    return stop_release(&s->stop);
}
