/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif

#define RED_ZONE  128
#define USER_CS   0x33
#define EFLAGS_TF 0x100ul
#define EFLAGS_DF 0x400ul

static uint64_t bit(int sig) {
    return 1ull << (sig - 1);
}

/* The kernel resets the handler of a fault signal that is blocked when the fault comes: these stay open,
 * SIGTRAP most of all, which is how the call ends. */
static uint64_t held_signals(void) {
    return ~(bit(SIGTRAP) | bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGSYS) |
             bit(SIGABRT));
}

int call_find_trap(pid_t pid, const struct proc_maps *maps, uint64_t base, uint64_t *addr) {
    const struct proc_map *lib = proc_maps_at(maps, base);
    char buf[4096];

    for (size_t i = 0; lib && i < maps->n; i++) {
        const struct proc_map *m = &maps->v[i];
        if (m->inode != lib->inode || strcmp(m->path, lib->path) || m->perms[2] != 'x')
            continue;
        for (uint64_t at = m->start; at < m->end; at += sizeof buf) {
            const char *p;
            if (proc_read(pid, at, buf, sizeof buf) < 0)
                break;
            p = memchr(buf, 0xcc, sizeof buf);
            if (p) {
                *addr = at + (uint64_t)(p - buf);
                return 0;
            }
        }
    }
    return -ENOENT;
}

int call_begin(struct call *c, struct stop *s, size_t i, uint64_t trap) {
    struct iovec iov = {c->xstate, sizeof c->xstate};
    char name[64];
    int rc = 0;

    *c = (struct call){.stop = s, .t = &s->v[i], .trap = trap, .mem = -1};
    if (c->t->regs.cs != USER_CS)
        return -ENOTSUP;
    if (c->t->signal)
        return -EAGAIN; /* it is in the middle of taking a signal */
    snprintf(name, sizeof name, "/proc/%d/mem", s->pid);
    c->mem = open(name, O_RDWR | O_CLOEXEC);
    if (c->mem < 0)
        return -errno;
    if (ptrace(PTRACE_GETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
        ptrace(PTRACE_GETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0)
        rc = -errno;
    else {
        uint64_t mask = held_signals();

        c->xlen = iov.iov_len;
        if (ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof mask, &mask) < 0)
            rc = -errno;
    }
    if (rc < 0) {
        close(c->mem);
        c->mem = -1;
        return rc;
    }
    c->sp = (c->t->regs.rsp - RED_ZONE) & ~63ull;
    return 0;
}

int call_write(struct call *c, uint64_t addr, const void *buf, size_t n) {
    return pwrite(c->mem, buf, n, (off_t)addr) == (ssize_t)n ? 0 : -EFAULT;
}

int call_string(struct call *c, const char *s, uint64_t *addr) {
    size_t n = strlen(s) + 1;

    c->sp = (c->sp - n) & ~63ull;
    *addr = c->sp;
    return call_write(c, c->sp, s, n);
}

static int start(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1) {
    struct user_regs_struct r = c->t->regs;
    uint64_t sp = c->sp - 8; /* as after a call: 8 below a multiple of 16 */

    r.rip = fn;
    r.rdi = arg0;
    r.rsi = arg1;
    r.rax = 0;
    r.rsp = sp;
    r.rbp = 0;
    r.orig_rax = (uint64_t)-1; /* else the kernel would restart the interrupted system call here */
    r.eflags &= ~(EFLAGS_TF | EFLAGS_DF);
    if (call_write(c, sp, &c->trap, sizeof c->trap) < 0)
        return -EFAULT;
    if (ptrace(PTRACE_SETREGS, c->t->tid, NULL, &r) < 0 ||
        ptrace(PTRACE_CONT, c->t->tid, NULL, NULL) < 0)
        return -errno;
    return 0;
}

/* What a stop of the calling thread means: 0 the call returned; -EAGAIN goes on; -EFAULT it crashed. */
static int judge(struct call *c, int st, uint64_t *result) {
    struct user_regs_struct r;
    int sig = WSTOPSIG(st);

    if (st >> 16 != 0)
        return -EAGAIN; /* the stop of an earlier interrupt, or a group stop */
    if (ptrace(PTRACE_GETREGS, c->t->tid, NULL, &r) < 0)
        return -ESRCH;
    if (sig == SIGTRAP && r.rip == c->trap + 1 && r.rsp == c->sp) {
        *result = r.rax;
        return 0;
    }
    if (sig == SIGSTOP) { /* cannot be held back: let the process have it when we are done */
        c->t->signal = SIGSTOP;
        return -EAGAIN;
    }
    return -EFAULT;
}

int call_function(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1, int timeout_ms,
                  uint64_t *result) {
    uint64_t deadline = proc_now() + (uint64_t)timeout_ms * 1000000u;
    int rc = fn ? start(c, fn, arg0, arg1) : 0;

    if (rc < 0)
        return rc;
    for (unsigned spin = 0;; spin++) {
        int st;
        pid_t r = waitpid(c->t->tid, &st, __WALL | WNOHANG);

        if (r < 0 && errno != EINTR)
            return -ESRCH;
        if (r > 0) {
            if (!WIFSTOPPED(st)) {
                c->t->stopped = 0;
                return -ESRCH;
            }
            rc = judge(c, st, result);
            if (rc != -EAGAIN)
                return rc;
            ptrace(PTRACE_CONT, c->t->tid, NULL, NULL);
        }
        if (proc_now() > deadline)
            return -ETIMEDOUT;
        proc_sleep_us(spin < 50 ? 20 : 200);
    }
}

/* The call never came back: stop the thread where it is. */
static int interrupt(struct call *c) {
    uint64_t deadline = proc_now() + 1000000000u;
    siginfo_t si;
    int st;

    if (ptrace(PTRACE_GETSIGINFO, c->t->tid, NULL, &si) == 0)
        return 0; /* it stands */
    if (ptrace(PTRACE_INTERRUPT, c->t->tid, NULL, NULL) < 0)
        return -errno;
    while (proc_now() < deadline) {
        pid_t r = waitpid(c->t->tid, &st, __WALL | WNOHANG);
        if (r > 0 && WIFSTOPPED(st))
            return 0;
        if (r != 0 && errno != EINTR)
            return -ESRCH;
        proc_sleep_us(100);
    }
    return -ETIMEDOUT;
}

int call_end(struct call *c) {
    struct iovec iov = {c->xstate, c->xlen};
    int rc = 0;

    if (c->mem >= 0)
        close(c->mem);
    c->mem = -1;
    if (!c->t->stopped)
        return -ESRCH;
    rc = interrupt(c);
    if (rc == 0 && (ptrace(PTRACE_SETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
                    ptrace(PTRACE_SETREGS, c->t->tid, NULL, &c->t->regs) < 0 ||
                    ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0))
        rc = -errno;
    if (rc == -ETIMEDOUT)
        c->t->stopped = 0;
    return rc;
}
