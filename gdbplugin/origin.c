/* SPDX-License-Identifier: Apache-2.0 */
/* What all origins share; the origin that GDB supplies; a live process. */
#include "origin.h"

#include "text.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD, in the flags of /proc/PID/stat */

struct origin_thread *origin_add(struct origin *s, pid_t tid) {
    if (array_grow(&s->v, s->n, sizeof *s->v) < 0)
        return NULL;
    s->v[s->n] = (struct origin_thread){.tid = tid, .inner = tid};
    return &s->v[s->n++];
}

struct origin_thread *origin_thread(struct origin *s, pid_t tid) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].tid == tid)
            return &s->v[i];
    return NULL;
}

int origin_by_tid(const void *a, const void *b) {
    const struct origin_thread *x = a, *y = b;

    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

int origin_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct origin *s = ctx;

    return s->mem.read(s->mem.ctx, addr, buf, n);
}

void origin_close(struct origin *s) {
    if (s->close)
        s->close(s);
    proc_maps_free(&s->maps);
    free(s->v);
    memset(s, 0, sizeof *s);
}

/* ---- the origin that GDB supplies ---- */

static int given_read(void *origin, uint64_t addr, void *buf, size_t n) {
    return ((struct origin *)origin)->given->read(addr, buf, n) == 0 ? 0 : -EFAULT;
}

static void given_close(struct origin *s) {
    free(s->mem.ctx);
}

int origin_given(struct origin *s, const struct inspect_given *given, char **why) {
    int rc = -ENOMEM;

    *s = (struct origin){
        .kind = ORIGIN_GIVEN, .pid = given->pid, .given = given, .close = given_close};
    *why = NULL;
    s->mem = (struct pywalk_mem){pywalk_pages_read,
                                 pywalk_pages_new((struct pywalk_mem){given_read, s})};
    if (given->exe)
        snprintf(s->exe, sizeof s->exe, "%s", given->exe);
    if (s->mem.ctx)
        rc = proc_maps_parse(given->maps, &s->maps);
    for (uint64_t i = 0; rc == 0 && i < given->n; i++) {
        const struct inspect_thread *from = &given->threads[i];
        struct origin_thread *t = origin_add(s, from->tid);
        if (!t) {
            rc = -ENOMEM;
            break;
        }
        t->known = REGS_ALL;
        snprintf(t->name, sizeof t->name, "%s", from->name);
        _Static_assert(sizeof t->regs == sizeof from->regs, "the kernel's own order");
        memcpy(&t->regs, from->regs, sizeof t->regs);
    }
    if (rc < 0)
        origin_close(s);
    else
        qsort(s->v, s->n, sizeof *s->v, origin_by_tid);
    return rc;
}

/* ---- a live process: running (memory and /proc, nothing is stopped), then perhaps stopped ---- */

/*
 * /proc/PID/task/TID/syscall waits until a sleeping thread has really left its CPU, and says "running" for any other thread. So for a sleeping one schedstat
 * has all its running time (the kernel adds it up when a thread leaves its CPU). If the file is missing, no thread counts as asleep.
 */
void origin_observe(struct origin *s, pid_t tid, struct origin_sleep *out) {
    struct proc_call call;
    char text[256], *end;

    *out = (struct origin_sleep){.call = -1};
    if (proc_file(s->pid, tid, "syscall", text, sizeof text) <= 0 || !proc_call(text, &call))
        return;
    out->call = call.number;
    out->sp = call.sp;
    out->pc = call.pc;
    if (proc_file(s->pid, tid, "schedstat", text, sizeof text) <= 0)
        return;
    out->ran_ns = strtoull(text, &end, 10);
    /* kernels without this statistic say 0 */
    out->asleep = end != text && out->ran_ns != 0 && out->pc != 0;
}

/* Says why nothing can be read from the process. */
static char *say_unreadable(pid_t pid, int rc) {
    char ppid[32] = "?", state = 0;

    if (rc == -ESRCH || rc == -ENOENT)
        return say("there is no process %d", pid);
    if (proc_task(pid, pid, NULL, 0, &state) == 0 && proc_is_over(state)) {
        proc_status(pid, 0, "PPid", ppid, sizeof ppid);
        return say("process %d has ended: it is a zombie until its parent (process %s) asks for it",
                   pid, ppid);
    }
    if (rc == -EPERM || rc == -EACCES)
        return say_not_permitted(pid);
    if (rc == -ECANCELED) /* memory goes first, some time before it becomes a zombie */
        return say("process %d is just ending: its memory is gone, and its stacks with it", pid);
    return say("process %d cannot be read: %s", pid, strerror(-rc));
}

/* Whether the process's memory can be read. */
static int may_read(struct origin *s, char **why) {
    char stat[1024], c;
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
        char *flags =
            proc_file(s->pid, 0, "stat", stat, sizeof stat) > 0 ? proc_stat_field(stat, 9) : NULL;
        if (flags && strtoul(flags, NULL, 10) & KERNEL_THREAD)
            return fail(why, -ENOTSUP,
                        "process %d is a kernel thread: it has no user memory and no stacks here",
                        s->pid);
        rc = -ECANCELED;
    }
    if (rc < 0)
        *why = say_unreadable(s->pid, rc);
    return rc;
}

static int list_threads(struct origin *s) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(s->pid, &tids);
    int same = proc_same_namespace(s->pid, "pid"); /* not in a container */

    if (n < 0)
        return (int)n;
    for (ssize_t i = 0; i < n; i++) {
        struct origin_thread *t = origin_add(s, tids[i]);
        if (!t)
            return -ENOMEM;
        if (!same)
            t->inner = proc_own_id(s->pid, t->tid);
        if (proc_task(s->pid, t->tid, t->name, sizeof t->name, &t->state) < 0)
            s->n--; /* just ended */
    }
    return 0;
}

/* Chooses the thread by which memory is read. A main thread that has called pthread_exit() is a zombie without memory; the other threads
 * have it. A running main thread is preferred, since other threads may end meanwhile, and may have lower ids. */
static void choose_reader(struct origin *s) {
    const struct origin_thread *first = origin_thread(s, s->pid);

    for (size_t i = 0; i < s->n && (!first || proc_is_over(first->state)); i++)
        if (!proc_is_over(s->v[i].state))
            first = &s->v[i];
    s->reader = first ? first->tid : s->pid;
}

static void live_close(struct origin *s) {
    stop_release(&s->stop);
}

int origin_running(struct origin *s, pid_t pid, char **why) {
    pid_t group = (pid_t)proc_status_number(pid, 0, "Tgid", 10); /* pid may be any thread's id */

    *s = (struct origin){.kind = ORIGIN_RUNNING, .close = live_close};
    *why = NULL;
    s->pid = s->reader = group > 0 ? group : pid;
    int rc = list_threads(s);
    if (rc == 0) {
        choose_reader(s);
        rc = proc_maps_read(s->reader, &s->maps);
    }
    if (rc < 0)
        *why = say_unreadable(pid, rc);
    else
        rc = may_read(s, why);
    if (rc < 0) {
        origin_close(s);
        return rc;
    }
    s->mem = pywalk_process(s->reader);
    if (proc_link(s->reader, "exe", s->exe, sizeof s->exe) < 0)
        s->exe[0] = 0;
    return 0;
}

int origin_stop(struct origin *s, int borrow, char **why) {
    int rc = borrow ? stop_borrow(&s->stop, s->pid) : stop_seize(&s->stop, s->pid, 1000);

    if (rc < 0) {
        *why = say_stop(s->pid, rc, &s->stop);
        origin_close(s);
        return rc;
    }
    s->stop.pid = s->reader; /* from now on only memory is read by this id */
    s->kind = ORIGIN_STOPPED;
    s->mem = (struct pywalk_mem){stop_read, &s->stop};
    for (size_t i = 0; i < s->n; i++)
        s->v[i].known = REGS_NONE;
    for (size_t i = 0; i < s->stop.n; i++) {
        struct origin_thread *t = origin_thread(s, s->stop.v[i].tid);
        if (!t) { /* it began after the list was read */
            t = origin_add(s, s->stop.v[i].tid);
            if (!t) {
                origin_close(s);
                return -ENOMEM;
            }
            proc_task(s->pid, t->tid, t->name, sizeof t->name, NULL);
        }
        t->known = REGS_ALL;
        t->regs = s->stop.v[i].regs;
    }
    /* Drop the threads that ended before the stop. */
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].known == REGS_ALL)
            s->v[k++] = s->v[i];
    s->n = k;
    return 0;
}
