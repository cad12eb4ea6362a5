/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - all threads of a process, standing still, with their registers and a cached view of the memory.
 *
 *     struct stop s;
 *     rc = stop_seize(&s, pid, 200);           // PTRACE_SEIZE + INTERRUPT: ours to release
 *     rc = stop_borrow(&s, pid);               // stopped by this very thread already (GDB): only read
 *     ... s.v[i].regs, stop_read(&s, addr, buf, n) ...
 *     stop_release(&s);                        // seized threads run on, each with the signal it was about to get
 *
 * ptrace belongs to a thread: every call of one stop must be made by the thread that began it. A seized process feels what a SIGSTOP and SIGCONT
 * would make it feel, and no signal: interrupted system calls are restarted by the kernel. stop_release() may be called at any time and twice. A
 * process whose tracer dies is released by the kernel in the same way. Functions return 0 or -errno: -EPERM not allowed or traced by another;
 * -ESRCH gone; -ETIMEDOUT a thread did not stop (uninterruptible sleep, no processor): everything has been released.
 */
#ifndef PROBING_INSPECT_STOP_H
#define PROBING_INSPECT_STOP_H

#include <sys/user.h>

#include "agent/pywalk/mem.h"
#include "writer/sys.h"

struct stop_thread {
    pid_t tid;
    int signal; /* it was about to get this one; given to it at the release */
    int stopped;
    struct user_regs_struct regs;
};

struct stop {
    pid_t pid;
    int seized; /* ours to release */
    size_t n;
    struct stop_thread *v;
    int left;          /* some may be ours that are not in v: killed, or not stopped in time */
    pid_t stuck;       /* -ETIMEDOUT: the thread that did not stop */
    uint64_t began_ns; /* when the first thread stood still (seize only) */
    struct pywalk_pages *cache; /* of its memory; NULL: reads are just slower */
    struct stop_reaper *reaper; /* asks for the ends of threads that an exec has killed */
    struct stop_piece {
        uint64_t addr;
        size_t n;
        const char *bytes;
    } * copies; /* stop_copy(): memory as it was, read before the process's own */
    size_t ncopies;
    char *copied; /* the bytes of all of them */
};

int stop_seize(struct stop *s, pid_t pid, int timeout_ms);
int stop_borrow(struct stop *s, pid_t pid);
/* Returns how long the process stood still, in ns (0 when it was borrowed). */
uint64_t stop_release(struct stop *s);
/* Releases all threads but v[keep] (their entries stay, marked as running). */
void stop_release_others(struct stop *s, size_t keep);

/* A thread that the kernel has seized for us (PTRACE_O_TRACECLONE): waits for its first stop and lets it go. 0, -ESRCH, -ETIMEDOUT. */
int stop_adopt(pid_t tid, int timeout_ms);
/* Waits for the next stop of a traced thread, until `deadline` (ns of CLOCK_MONOTONIC): 0 with *status as waitpid() gives it; -ESRCH: it
 * has ended; -ETIMEDOUT. Wakes at once where SIGCHLD is blocked in this thread (it is taken then), else within some 50 us. */
int stop_wait(struct stop_thread *t, int *status, uint64_t deadline);

/*
 * The threads of a stop with a copy of the inner part of their stacks, to be unwound when the process runs again: a struct stop whose
 * memory (stop_read) is the copied stacks, and for all else the running process. 0 or -ENOMEM; stop_copy_free() after both.
 */
int stop_copy(struct stop *copy, const struct stop *s, const struct proc_maps *maps);
void stop_copy_free(struct stop *copy);

/* Memory of the stopped process; 0 or -EFAULT. Has the type of a pywalk_read_fn. */
int stop_read(void *s, uint64_t addr, void *buf, size_t n);

#endif
