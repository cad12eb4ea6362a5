/* SPDX-License-Identifier: Apache-2.0 */
#include "stop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define ERESTARTNOHAND 514 /* internal to the kernel */
#define REAP_NS        (5 * SYS_MS)
#define UNTRACE_NS     (500 * SYS_MS)
#define SEIZE_TRIES    5
#define STARVED        4 /* times the timeout */

static struct stop_thread *add(struct stop *s, pid_t tid) {
    if (array_grow(&s->v, s->n, sizeof *s->v) < 0)
        return NULL;
    s->v[s->n] = (struct stop_thread){.tid = tid};
    return &s->v[s->n++];
}

static int known(const struct stop *s, pid_t tid) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].tid == tid)
            return 1;
    return 0;
}

static int read_process(void *stop, uint64_t addr, void *buf, size_t n) {
    return proc_read(((struct stop *)stop)->pid, addr, buf, n);
}

static void begin(struct stop *s, pid_t pid) {
    *s = (struct stop){.pid = pid};
    s->cache = pywalk_pages_new((struct pywalk_mem){read_process, s});
}

int stop_wait(struct stop_thread *t, int *status, uint64_t deadline) {
    sigset_t chld;
    int by_signal = -1; /* -1: not known; else whether SIGCHLD is blocked here */

    for (unsigned spin = 0;; spin++) {
        pid_t r = waitpid(t->tid, status, __WALL | WNOHANG);
        if (r < 0 && errno != EINTR)
            return -ESRCH;
        if (r > 0) {
            t->stopped = WIFSTOPPED(*status);
            return t->stopped ? 0 : -ESRCH;
        }
        if (sys_now() > deadline)
            return -ETIMEDOUT;
        if (spin < 3) {
            sched_yield();
            continue;
        }
        if (by_signal < 0)
            by_signal =
                !pthread_sigmask(SIG_BLOCK, NULL, &chld) && sigismember(&chld, SIGCHLD) == 1;
        if (by_signal) {
            struct timespec ms = {0, 1000000};
            sigemptyset(&chld);
            sigaddset(&chld, SIGCHLD);
            sigtimedwait(&chld, NULL, &ms);
        } else
            sys_sleep(20000u);
    }
}

/*
 * The kernel repeats most interrupted system calls by itself. Some end with EINTR when a thread is stopped
 * (signal(7)), and C code may not expect that. So make the kernel repeat these, too, unless a signal's handler comes
 * first. Not those with a timeout: it would begin anew at each stop, and a timer might never expire.
 */
static void call_again(struct stop_thread *t) {
    const struct user_regs_struct *r = &t->regs;
    int endless = r->orig_rax == SYS_epoll_wait || r->orig_rax == SYS_epoll_pwait ? (int)r->r10 < 0
                  : r->orig_rax == SYS_epoll_pwait2 || r->orig_rax == SYS_semtimedop ? r->r10 == 0
                  : r->orig_rax == SYS_rt_sigtimedwait                               ? r->rdx == 0
                  : r->orig_rax == SYS_io_getevents                                  ? r->r8 == 0
                                                    : r->orig_rax == SYS_semop;
    if (endless && (long)r->rax == -EINTR && !t->signal) {
        t->regs.rax = (unsigned long long)-ERESTARTNOHAND;
        ptrace(PTRACE_POKEUSER, t->tid, offsetof(struct user, regs.rax), t->regs.rax);
    }
}

/* Waits until the thread is stopped. Returns 0; -ESRCH: it ended; -ETIMEDOUT. */
static int wait_stop(struct stop_thread *t, uint64_t deadline) {
    int st, rc = stop_wait(t, &st, deadline);

    if (rc < 0)
        return rc;
    if (st >> 16 == 0) /* it was about to take a signal: deliver it later */
        t->signal = WSTOPSIG(st);
    if (ptrace(PTRACE_GETREGS, t->tid, NULL, &t->regs) < 0)
        return -ESRCH;
    call_again(t);
    return 0;
}

/* Whether we trace the thread since an earlier try, in which it got no processor to stop on (let_go()). */
static int is_ours(pid_t pid, pid_t tid) {
    return proc_status_number(pid, tid, "TracerPid", 10) == (uint64_t)gettid();
}

/* Whether the thread has stopped, and nobody has waited for that stop: it needs no other stop then. */
static int has_stopped(pid_t tid) {
    siginfo_t si = {0};

    return waitid(P_PID, (id_t)tid, &si, WSTOPPED | WNOHANG | WNOWAIT | __WALL) == 0 &&
           si.si_pid == tid;
}

/*
 * ---- an exec meanwhile ----
 * An exec kills all other threads and waits in the kernel until they are gone; a traced thread is gone only when its tracer has
 * waited for its end. PTRACE_SEIZE in turn waits for the exec. So a tracer that seizes the next thread while the exec waits for
 * those seized before would hang for ever. Therefore another thread waits for the ends: any thread of the tracer's process may.
 */
struct stop_reaper {
    pthread_t thread;
    pid_t pid;
    uint32_t over;
};

/* Waits for the ends of all threads but the first, for which an exec does not wait. The kernel also reports stops to a tracer, whatever it
 * waits for: these are left pending. */
static void reap(pid_t pid) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(pid, &tids);

    for (ssize_t i = 0; i < n; i++) {
        siginfo_t si = {0};
        if (tids[i] != pid &&
            waitid(P_PID, (id_t)tids[i], &si, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 &&
            (si.si_code == CLD_EXITED || si.si_code == CLD_KILLED || si.si_code == CLD_DUMPED))
            waitid(P_PID, (id_t)tids[i], &si, WEXITED | WNOHANG | __WALL);
    }
}

static void *reap_main(void *arg) {
    struct stop_reaper *r = arg;

    while (!__atomic_load_n(&r->over, __ATOMIC_ACQUIRE)) {
        sys_wait(&r->over, 0, sys_now() + REAP_NS);
        reap(r->pid);
    }
    return NULL;
}

/* Returns NULL without memory or a thread for it: then the stop works without a reaper. */
static struct stop_reaper *reaper_start(pid_t pid) {
    struct stop_reaper *r = calloc(1, sizeof *r);
    sigset_t all, before;
    int err = ENOMEM;

    if (r) {
        r->pid = pid;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&r->thread, NULL, reap_main, r);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (err) {
        free(r);
        r = NULL;
    }
    return r;
}

static void reaper_end(struct stop_reaper *r) {
    if (!r)
        return;
    __atomic_store_n(&r->over, 1, __ATOMIC_RELEASE);
    sys_wake(&r->over);
    pthread_join(r->thread, NULL);
    free(r);
}

/* Seizes a thread. Returns 0: it is ours; -ENOENT: it has ended (or is a leader that has, while others live on). */
static int seize(pid_t pid, pid_t tid) {
    int err = 0;

    /* While we look for the reason of a failure, an exec may end the thread, or give it the main thread's id. */
    for (int i = 0; i < SEIZE_TRIES; i++) {
        char state;
        err = ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 ? errno : 0;
        if (err && (proc_task(pid, tid, NULL, 0, &state) < 0 || proc_is_over(state)))
            return -ENOENT;
        if (!err || is_ours(pid, tid)) {
            if ((err && has_stopped(tid)) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0)
                return 0;
            if (is_ours(pid, pid)) /* the thread that we seized may have the main thread's id now */
                ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
            return -ESRCH;
        }
    }
    return -err;
}

/* One round over the thread list: seizes and interrupts the new threads. Returns their number. */
static int seize_round(struct stop *s) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(s->pid, &tids);
    int fresh = 0, rc = 0;

    if (n < 0)
        return (int)n;
    for (ssize_t i = 0; i < n && rc == 0; i++) {
        int err = known(s, tids[i]) ? -ENOENT : seize(s->pid, tids[i]);
        s->left |= err == -ESRCH; /* it has ended, or has the main thread's id now */
        if (err == 0 && !add(s, tids[i]))
            rc = -ENOMEM;
        else if (err < 0 && err != -ENOENT && err != -ESRCH)
            rc = err;
        fresh += err == 0;
    }
    return rc < 0 ? rc : fresh;
}

/*
 * A thread in an uninterruptible call (a hanging file system; the parent of a vfork) cannot be stopped, and once
 * seized it could not be released either. So wait for it before anything is done.
 */
static int wait_interruptible(struct stop *s, uint64_t deadline) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(s->pid, &tids);
    char state;

    if (n < 0)
        return (int)n;
    for (ssize_t i = 0; i < n && !s->stuck; i++) {
        while (proc_task(s->pid, tids[i], NULL, 0, &state) == 0 && state == 'D') {
            if (sys_now() > deadline) {
                s->stuck = tids[i];
                break;
            }
            reap(s->pid); /* those that an earlier try could not release */
            sys_sleep(500000u);
        }
    }
    return s->stuck ? -ETIMEDOUT : 0;
}

/* Removes from the list the threads that are no longer stopped because they were killed. Returns their number. */
static size_t drop_ended(struct stop *s, size_t *done) {
    size_t k = 0, n = s->n;

    for (size_t i = 0; i < n; i++) {
        struct user_regs_struct r;
        if (s->v[i].stopped && ptrace(PTRACE_GETREGS, s->v[i].tid, NULL, &r) == 0)
            s->v[k++] = s->v[i];
    }
    *done = s->n = k;
    s->left |= k < n;
    return n - k;
}

/* Whether some thread lives although none could be seized: an exec is just giving one of them the main thread's place. -ETIMEDOUT: it takes too long. */
static int is_between(pid_t pid, uint64_t deadline) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(pid, &tids);
    int yes = 0;

    for (ssize_t i = 0; i < n && !yes; i++)
        yes = proc_is_running(tids[i]);
    if (yes)
        sys_sleep(SYS_MS);
    return yes && sys_now() > deadline ? -ETIMEDOUT : yes;
}

/* Whether the thread would stop if it got a processor, or has just done so. */
static int is_starved(pid_t pid, pid_t tid) {
    char state;

    return proc_task(pid, tid, NULL, 0, &state) == 0 && state != 'D';
}

int stop_seize(struct stop *s, pid_t pid, int timeout_ms) {
    const uint64_t time = (uint64_t)timeout_ms * SYS_MS, deadline = sys_now() + time;
    size_t done = 0;
    pid_t stuck;

    begin(s, pid);
    int rc = wait_interruptible(s, deadline);
    if (rc < 0)
        goto fail;
    s->seized = 1;
    s->reaper = reaper_start(pid);
    s->began_ns = sys_now();
    /* A thread that is not stopped yet can start others, or end all others by an exec. So repeat until a round finds none, and all stopped
     * ones are still stopped. If it was we who got no processor, all are stopped by now, and no timeout matters. */
    while ((rc = seize_round(s)) > 0 || (rc == 0 && drop_ended(s, &done)) ||
           (rc == 0 && s->n == 0 && (rc = is_between(pid, deadline)) > 0)) {
        for (; rc >= 0 && done < s->n; done++) {
            int err = wait_stop(&s->v[done], deadline);
            if (err == -ETIMEDOUT && is_starved(pid, s->v[done].tid))
                err = wait_stop(&s->v[done], deadline + STARVED * time);
            if (err == -ETIMEDOUT) {
                s->stuck = s->v[done].tid;
                rc = err;
            }
        }
        if (rc < 0)
            break;
    }
    if (rc == 0 && s->n == 0)
        rc = -ESRCH;
    if (rc == 0)
        return 0;
fail:
    stuck = s->stuck ? s->stuck : pid;
    stop_release(s);
    s->pid = pid;
    s->stuck = stuck; /* for the message */
    return rc;
}

int stop_borrow(struct stop *s, pid_t pid) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(pid, &tids);
    int rc = n < 0 ? (int)n : 0;

    begin(s, pid);
    for (ssize_t i = 0; i < n && rc == 0; i++) {
        struct stop_thread *t = add(s, tids[i]);
        if (!t)
            rc = -ENOMEM;
        else if (ptrace(PTRACE_GETREGS, tids[i], NULL, &t->regs) < 0)
            s->n--; /* it has ended, or is running */
        else
            t->stopped = 1;
    }
    if (rc == 0 && s->n == 0)
        rc = -EPERM;
    if (rc < 0)
        stop_release(s);
    return rc;
}

/* Releases a thread. Returns 1 when that failed: it has been killed meanwhile, or did not stop in time. */
static int let_go(struct stop_thread *t) {
    int st, left;

    if (!t->stopped) {
        /* A detach needs a stop. It may have come by now; otherwise is_traced() or the next stop_seize() handles it,
         * or the end of this process releases the thread. */
        if (waitpid(t->tid, &st, __WALL | WNOHANG) <= 0 || !WIFSTOPPED(st))
            return 1;
        if (st >> 16 == 0)
            t->signal = WSTOPSIG(st);
    }
    left = ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(long)t->signal) < 0;
    t->stopped = 0;
    return left;
}

/* Whether a thread of the process is still ours. Reaps those that have ended (the parent, or an exec, waits for that), and releases those
 * that are stopped: after an exec by a thread that we had seized, that is the main one. */
static int is_traced(pid_t pid) {
    AUTO_FREE pid_t *tids;
    ssize_t n = proc_tids(pid, &tids);
    int yes = 0;

    for (ssize_t i = 0; i < n; i++) {
        struct stop_thread t = {.tid = tids[i]};
        if (!is_ours(pid, t.tid))
            continue;
        yes = 1;
        ptrace(PTRACE_INTERRUPT, t.tid, NULL, NULL);
        let_go(&t);
    }
    return yes;
}

int stop_adopt(pid_t tid, int timeout_ms) {
    struct stop_thread t = {.tid = tid};
    int rc = wait_stop(&t, sys_now() + (uint64_t)timeout_ms * 1000000u);

    if (rc == 0)
        let_go(&t);
    return rc;
}

void stop_release_others(struct stop *s, size_t keep) {
    for (size_t i = 0; s->seized && i < s->n; i++)
        if (i != keep)
            let_go(&s->v[i]);
}

uint64_t stop_release(struct stop *s) {
    uint64_t took = 0;

    if (s->seized) {
        for (size_t i = 0; i < s->n; i++)
            s->left |= let_go(&s->v[i]);
        took = sys_now() - s->began_ns;
        while (s->left && is_traced(s->pid) && sys_now() < s->began_ns + took + UNTRACE_NS)
            sys_sleep(SYS_MS);
    }
    reaper_end(s->reaper);
    free(s->v);
    free(s->cache);
    *s = (struct stop){0};
    return took;
}

int stop_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct stop *s = ctx;

    for (size_t i = 0; i < s->ncopies; i++) {
        const struct stop_piece *c = &s->copies[i];
        if (addr - c->addr < c->n && c->n - (addr - c->addr) >= n) {
            memcpy(buf, c->bytes + (addr - c->addr), n);
            return 0;
        }
    }
    return s->cache && n <= 4096 ? pywalk_pages_read(s->cache, addr, buf, n)
                                 : proc_read(s->pid, addr, buf, n);
}

/* ---- copies ---- */

#define COPY_EACH (64u << 10)
#define COPY_ALL  (8u << 20)

int stop_copy(struct stop *copy, const struct stop *s, const struct proc_maps *maps) {
    size_t each = COPY_ALL / s->n < COPY_EACH ? COPY_ALL / s->n : COPY_EACH;

    *copy = (struct stop){.pid = s->pid};
    copy->v = calloc(s->n, sizeof *copy->v);
    copy->copies = calloc(s->n, sizeof *copy->copies);
    copy->copied = malloc(s->n * each);
    if (!copy->v || !copy->copies || !copy->copied)
        return -ENOMEM;
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t sp = s->v[i].regs.rsp;
        const struct proc_map *m = proc_maps_at(maps, sp);
        size_t n = !m ? 0 : m->end - sp < each ? (size_t)(m->end - sp) : each;
        char *bytes = copy->copied + i * each;

        copy->v[copy->n++] = s->v[i];
        copy->v[i].stopped = 0;
        if (n && proc_read(s->pid, sp, bytes, n) == 0)
            copy->copies[copy->ncopies++] = (struct stop_piece){sp, n, bytes};
    }
    return 0;
}

void stop_copy_free(struct stop *copy) {
    free(copy->copied);
    free(copy->copies);
    free(copy->v);
    *copy = (struct stop){0};
}
