/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif

#define RED_ZONE      128
#define USER_CS       0x33
#define EFLAGS_TF     0x100ul
#define EFLAGS_DF     0x400ul
#define UNWATCHED_NS  20000000u
#define STEPS_MAX     200000
#define INTERRUPT_NS  1000000000u
#define ENTRY_LENGTH  9 /* of the restorer, up to the end of its `syscall` */
#define SYSCALL_STOP  (SIGTRAP | 0x80)
#define FS_BASE_INSNS 32

static uint64_t bit(int sig) {
    return 1ull << (sig - 1);
}

/* The kernel resets the handler of a fault signal that is blocked when the fault comes: these stay open. */
static uint64_t held_signals(void) {
    return ~(bit(SIGTRAP) | bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGSYS) |
             bit(SIGABRT));
}

int call_find_restorer(pid_t pid, const struct proc_maps *maps, uint64_t base, uint64_t *addr) {
    static const unsigned char code[ENTRY_LENGTH] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
    const struct proc_map *lib = proc_maps_at(maps, base);
    char buf[65536];

    for (size_t i = 0; lib && i < maps->n; i++) {
        const struct proc_map *m = &maps->v[i];
        if (m->inode != lib->inode || strcmp(m->path, lib->path) || m->perms[2] != 'x')
            continue;
        for (uint64_t at = m->start; at < m->end; at += sizeof buf - sizeof code) {
            size_t n = m->end - at < sizeof buf ? (size_t)(m->end - at) : sizeof buf;
            const char *p;
            if (proc_read(pid, at, buf, n) < 0)
                break;
            p = memmem(buf, n, code, sizeof code);
            if (p) {
                *addr = at + (uint64_t)(p - buf);
                return 0;
            }
        }
    }
    return -ENOENT;
}

/*
 * The address of the thread's errno, without calling __errno_location: it adds a number from the C library's
 * table (rip-relative) to the thread pointer, in one of two orders.
 */
static uint64_t find_errno(struct call *c) {
    unsigned char b[FS_BASE_INSNS], *p = b;
    uint64_t slot, offset;
    int32_t disp;

    if (!c->code->errno_location || stop_read(c->stop, c->code->errno_location, b, sizeof b) < 0)
        return 0;
    if (memcmp(p, "\xf3\x0f\x1e\xfa", 4) == 0) /* endbr64 */
        p += 4;
    if (memcmp(p, "\x48\x8b\x05", 3) == 0 &&
        memcmp(p + 7, "\x64\x48\x03\x04\x25\0\0\0\0\xc3", 10) == 0)
        p += 3; /* mov disp(%rip), %rax; add %fs:0, %rax; ret */
    else if (memcmp(p, "\x64\x48\x8b\x04\x25\0\0\0\0\x48\x03\x05", 12) == 0 && p[16] == 0xc3)
        p += 12; /* mov %fs:0, %rax; add disp(%rip), %rax; ret */
    else
        return 0;
    memcpy(&disp, p, sizeof disp);
    slot = c->code->errno_location + (uint64_t)(p + 4 - b) + (uint64_t)(int64_t)disp;
    if (stop_read(c->stop, slot, &offset, sizeof offset) < 0)
        return 0;
    return c->t->regs.fs_base + offset;
}

int call_begin(struct call *c, struct stop *s, size_t i, const struct call_code *code) {
    struct iovec iov = {c->xstate, sizeof c->xstate};
    char name[64];
    int rc = 0;

    c->stop = s;
    c->t = &s->v[i];
    c->code = code;
    c->mem = -1;
    c->sp = 0;
    c->until_clone = 0;
    c->child = 0;
    c->left = 0;
    if (c->t->regs.cs != USER_CS)
        return -ENOTSUP;
    if (c->t->signal)
        return -EAGAIN; /* it is in the middle of taking a signal */
    snprintf(name, sizeof name, "/proc/%d/mem", s->pid);
    c->mem = open(name, O_RDWR | O_CLOEXEC);
    if (c->mem < 0)
        return -errno;
    if (ptrace(PTRACE_GETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
        ptrace(PTRACE_GETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0 ||
        ptrace(PTRACE_SETOPTIONS, c->t->tid, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) < 0)
        rc = -errno;
    if (rc < 0) {
        close(c->mem);
        c->mem = -1;
        return rc;
    }
    c->xlen = iov.iov_len;
    c->below = c->t->regs.rsp - RED_ZONE;
    c->errno_at = find_errno(c);
    if (c->errno_at && stop_read(s, c->errno_at, &c->saved_errno, sizeof c->saved_errno) < 0)
        c->errno_at = 0;
    return 0;
}

int call_write(struct call *c, uint64_t addr, const void *buf, size_t n) {
    return pwrite(c->mem, buf, n, (off_t)addr) == (ssize_t)n ? 0 : -EFAULT;
}

int call_string(struct call *c, const char *s, uint64_t *addr) {
    size_t n = strlen(s) + 1;

    c->below -= n;
    *addr = c->below;
    return call_write(c, c->below, s, n);
}

/*
 * Each step by itself leaves a thread that ends well: the frame lies in unused stack; with the registers set the
 * function is as good as called by a signal handler's frame; the mask is in the frame.
 */
static int start(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1) {
    struct user_regs_struct r = c->t->regs;
    uint64_t mask = held_signals();
    int rc = sigframe_build(&c->frame, &c->t->regs, c->mask, c->xstate, c->xlen, c->below,
                            c->code->restorer);

    if (rc < 0)
        return rc;
    r.rip = fn;
    r.rdi = arg0;
    r.rsi = arg1;
    r.rax = 0;
    r.rsp = c->frame.at;
    r.orig_rax = (uint64_t)-1; /* else the kernel would restart the interrupted system call here */
    r.eflags &= ~(EFLAGS_TF | EFLAGS_DF);
    if (call_write(c, c->frame.at, c->frame.bytes, c->frame.n) < 0)
        return -EFAULT;
    if (ptrace(PTRACE_SETREGS, c->t->tid, NULL, &r) < 0)
        return -errno;
    c->sp = c->frame.at;
    return ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof mask, &mask) < 0 ? -errno : 0;
}

/* Vector registers and mask; then where it stood, with the system call that it is about to make left out. */
static int put_back(struct call *c, const struct user_regs_struct *regs) {
    struct iovec iov = {c->xstate, c->xlen};

    if (c->errno_at)
        call_write(c, c->errno_at, &c->saved_errno, sizeof c->saved_errno);
    if (ptrace(PTRACE_SETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
        ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0 ||
        ptrace(PTRACE_SETREGS, c->t->tid, NULL, regs) < 0)
        return -errno;
    return 0;
}

/* The thread stands or runs: brings it to a stop that is no system call's, where the kernel looks after an interrupted
 * system call once more when it goes on. */
static int come_to_rest(struct call *c, int running) {
    uint64_t deadline = proc_now() + INTERRUPT_NS;
    int st, rc;

    if (ptrace(PTRACE_INTERRUPT, c->t->tid, NULL, NULL) < 0 ||
        (!running && ptrace(PTRACE_CONT, c->t->tid, NULL, NULL) < 0))
        return -errno;
    for (;;) {
        rc = stop_wait(c->t->tid, &st, deadline);
        if (rc < 0)
            return rc;
        if (!WIFSTOPPED(st)) {
            c->t->stopped = 0;
            return -ESRCH;
        }
        if (st >> 16 == PTRACE_EVENT_STOP || WSTOPSIG(st) != SYSCALL_STOP)
            return 0;
        ptrace(PTRACE_CONT, c->t->tid, NULL, NULL);
    }
}

/* It is about to enter rt_sigreturn. */
static int returned(struct call *c) {
    struct user_regs_struct r = sigframe_resumed(&c->t->regs);
    int rc = 0;

    c->sp = 0;
    /* A seccomp filter would be asked about the call that is left out: there the kernel may do its work. */
    if (!c->code->filtered)
        rc = put_back(c, &r);
    if (rc == 0)
        rc = come_to_rest(c, 0);
    return rc;
}

/* What a stop of the calling thread means: 0 the call returned; -EAGAIN goes on; -EFAULT it crashed. */
static int judge(struct call *c, int st, uint64_t *result) {
    struct user_regs_struct r;
    int sig = WSTOPSIG(st);

    if (st >> 16 == PTRACE_EVENT_CLONE) {
        unsigned long child = 0;
        ptrace(PTRACE_GETEVENTMSG, c->t->tid, NULL, &child);
        c->child = (pid_t)child;
        return -EAGAIN;
    }
    if (ptrace(PTRACE_GETREGS, c->t->tid, NULL, &r) < 0)
        return -ESRCH;
    if (st >> 16 != 0) { /* our interrupt, or a group stop */
        /* Unwatched it may have come back: then it is above the frame. */
        if (!c->until_clone || c->child || r.rsp <= c->frame.at + 8)
            return -EAGAIN;
        c->left = 1;
        c->sp = 0;
        return 0;
    }
    if (result && sig == SIGTRAP) {
        if (r.rip != c->code->restorer || r.rsp != c->frame.at + 8)
            return -EAGAIN;
        *result = r.rax;
        return 0;
    }
    if (sig == SYSCALL_STOP) {
        if (r.orig_rax != SYS_rt_sigreturn || r.rip != c->code->restorer + ENTRY_LENGTH ||
            r.rsp != c->frame.at + 8)
            return -EAGAIN;
        return returned(c);
    }
    if (sig == SIGSTOP) { /* cannot be held back: let the process have it when we are done */
        c->t->signal = SIGSTOP;
        return -EAGAIN;
    }
    return -EFAULT;
}

/* How the thread goes on. */
static int go_on(const struct call *c, int stepping) {
    int how = stepping                      ? PTRACE_SINGLESTEP
              : c->until_clone && !c->child ? PTRACE_CONT
                                            : PTRACE_SYSCALL;

    return ptrace(how, c->t->tid, NULL, NULL) < 0 ? -errno : 0;
}

/* The next stop. Of a thread that is not watched we ask for one now and then. */
static int next_stop(struct call *c, int *st, uint64_t deadline) {
    int rc;

    for (;;) {
        uint64_t soon = proc_now() + UNWATCHED_NS;
        int ask = c->until_clone && !c->child && soon < deadline;
        rc = stop_wait(c->t->tid, st, ask ? soon : deadline);
        if (rc != -ETIMEDOUT || !ask)
            return rc;
        ptrace(PTRACE_INTERRUPT, c->t->tid, NULL, NULL);
    }
}

int call_function(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1, int timeout_ms,
                  uint64_t *result) {
    uint64_t deadline = proc_now() + (uint64_t)timeout_ms * 1000000u;
    int rc = 0, st;

    if (result && c->code->no_steps)
        return -ENOTSUP;
    if (fn) {
        rc = start(c, fn, arg0, arg1);
        if (rc == 0)
            rc = go_on(c, result != NULL);
    }
    for (unsigned steps = 0; rc == 0; steps++) {
        rc = next_stop(c, &st, deadline);
        if (rc < 0)
            return rc;
        if (!WIFSTOPPED(st)) {
            c->t->stopped = 0;
            return -ESRCH;
        }
        rc = judge(c, st, result);
        if (rc != -EAGAIN)
            return rc;
        rc = steps > STEPS_MAX && result ? -ETIMEDOUT : go_on(c, result != NULL);
    }
    return rc;
}

int call_end(struct call *c) {
    siginfo_t si;
    int rc = 0, unfinished = c->sp != 0;

    if (c->t->stopped && unfinished) {
        /* It has crashed (and stands), was stepped through, or still runs. */
        int stands = ptrace(PTRACE_GETSIGINFO, c->t->tid, NULL, &si) == 0;
        if (!stands)
            rc = come_to_rest(c, 1);
        if (rc == 0 && !stands) {
            /* Let it end by itself, with its own signals. */
            if (ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0)
                rc = -errno;
        } else if (rc == 0)
            unfinished = 0;
    }
    if (c->t->stopped && rc == 0 && !unfinished && !c->left) {
        struct user_regs_struct r = c->t->regs;
        /* With a filter, rt_sigreturn has run, after which a timeout cannot be continued. */
        if (c->code->filtered && (long)r.orig_rax >= 0 && (long)r.rax == -516)
            r = sigframe_resumed(&r);
        rc = put_back(c, &r);
    }
    if (c->mem >= 0)
        close(c->mem);
    c->mem = -1;
    if (!c->t->stopped)
        rc = -ESRCH;
    else if (rc == -ETIMEDOUT)
        c->t->stopped = 0;
    return rc;
}
