/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - stops all threads of a process, and gives their registers and a cached view of the memory.
 *
 *     struct stop s;
 *     rc = stop_seize(&s, pid, 200);           // PTRACE_SEIZE + INTERRUPT: ours to release
 *     rc = stop_borrow(&s, pid);               // stopped by this very thread already (GDB): only read
 *     ... s.v[i].regs, stop_read(&s, addr, buf, n) ...
 *     stop_release(&s);                        // seized threads run on, each with the signal it was about to get
 *
 * ptrace is tied to a thread: every call for one stop must be made by the thread that began it. For a seized process this is like a SIGSTOP and
 * SIGCONT, but without a signal: the kernel restarts interrupted system calls. stop_release() may be called at any time and twice. When the
 * tracer dies, the kernel releases the process in the same way. Functions return 0 or -errno: -EPERM: not allowed, or traced by another process;
 * -ESRCH: gone; -ETIMEDOUT: a thread did not stop (uninterruptible sleep, no processor), and everything has been released.
 */
#ifndef PROBING_INSPECT_STOP_H
#define PROBING_INSPECT_STOP_H

#include <sys/user.h>

#include "agent/pywalk/mem.h"
#include "writer/sys.h"

struct stop_thread {
    pid_t tid;
    int signal; /* signal that it was about to get; delivered at the release */
    int stopped;
    struct user_regs_struct regs;
};

struct stop {
    pid_t pid;
    int seized; /* ours to release */
    size_t n;
    struct stop_thread *v;
    int left;          /* threads not in v may still be ours: killed, or not stopped in time */
    pid_t stuck;       /* -ETIMEDOUT: the thread that did not stop */
    uint64_t began_ns; /* time at which the first thread was stopped (seize only) */
    struct pywalk_pages *cache; /* cache of its memory; NULL: reads are just slower */
    struct stop_reaper *reaper; /* waits for threads that an exec has killed */
    struct stop_piece {
        uint64_t addr;
        size_t n;
        const char *bytes;
    } * copies; /* stop_copy(): old copies of memory, read in place of the process's */
    size_t ncopies;
    char *copied; /* buffer for the bytes of all copies */
};

int stop_seize(struct stop *s, pid_t pid, int timeout_ms);
int stop_borrow(struct stop *s, pid_t pid);
/* Releases the threads. Returns how long the process was stopped, in ns (0 when it was borrowed). */
uint64_t stop_release(struct stop *s);
/* Releases all threads but v[keep] (their entries stay, marked as running). */
void stop_release_others(struct stop *s, size_t keep);

/* For a thread that the kernel has seized for us (PTRACE_O_TRACECLONE): waits for its first stop and lets it run. Returns 0, -ESRCH, -ETIMEDOUT. */
int stop_adopt(pid_t tid, int timeout_ms);
/* Waits for the next stop of a traced thread, until `deadline` (ns of CLOCK_MONOTONIC). Returns 0 with *status as from waitpid(); -ESRCH:
 * it has ended; -ETIMEDOUT. Wakes at once if SIGCHLD is blocked in this thread (it consumes the signal then), else within some 50 us. */
int stop_wait(struct stop_thread *t, int *status, uint64_t deadline);

/*
 * Copies the threads of a stop with the inner part of their stacks, to unwind them when the process runs again. stop_read() of the copy
 * reads the copied stacks, and everything else from the running process. Returns 0 or -ENOMEM; call stop_copy_free() in both cases.
 */
int stop_copy(struct stop *copy, const struct stop *s, const struct proc_maps *maps);
void stop_copy_free(struct stop *copy);

/* Reads memory of the stopped process. Returns 0 or -EFAULT. Has the type of a pywalk_read_fn. */
int stop_read(void *s, uint64_t addr, void *buf, size_t n);

#endif
