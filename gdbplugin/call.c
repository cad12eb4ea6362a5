/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <cpuid.h>
#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define RED_ZONE      128
#define USER_CS       0x33
#define EFLAGS_TF     0x100ul
#define EFLAGS_DF     0x400ul
#define UNWATCHED_NS  20000000u
#define STEPS_MAX     200000
#define INTERRUPT_NS  1000000000u
#define ENTRY_LENGTH  9 /* length of the restorer up to the end of its `syscall` */
#define SYSCALL_STOP  (SIGTRAP | 0x80)
#define FS_BASE_INSNS 32

/*
 * ---- builds a signal frame like one that the kernel pushes ----
 * The layout is struct rt_sigframe of Linux on x86-64 (arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h).
 */

#define FX_SIZE     512
#define XSAVE_MIN   576 /* FX_SIZE plus the XSAVE header */
#define SW_RESERVED 464 /* offset in the FX part of what the kernel stores for itself */
#define AMX         (3ull << 17)
#define AMX_DATA    (1ull << 18)

#define UC_FP_XSTATE         1u
#define UC_SIGCONTEXT_SS     2u
#define UC_STRICT_RESTORE_SS 4u
#define SS_INVALID           0x7fff /* the kernel leaves the alternate stack unchanged */

struct frame { /* struct rt_sigframe: ucontext's flags, link and stack, then the rest */
    uint64_t return_address;
    uint64_t uc_flags, uc_link;
    uint64_t ss_sp;
    uint32_t ss_flags, ss_pad;
    uint64_t ss_size;
    struct sigcontext regs;
    uint64_t sigmask;
    char siginfo[128];
};
_Static_assert(offsetof(struct frame, regs) == 8 + 40,
               "ucontext: flags, link and stack come first");
_Static_assert(offsetof(struct frame, sigmask) == 8 + 40 + 256, "struct sigcontext has 256 bytes");

/* Returns the number of bytes that the state components `features` take in the standard format of XSAVE. */
static size_t xsave_size(uint64_t features) {
    size_t size = XSAVE_MIN;

    for (unsigned i = 2; i < 63; i++) {
        unsigned a, b, c, d;
        if (features >> i & 1 && __get_cpuid_count(0xd, i, &a, &b, &c, &d) && a + b > size)
            size = a + b;
    }
    return size;
}

/*
 * Registers with which a thread continues by itself when the kernel will no longer handle its interrupted system
 * call: the call is made again, or, when that would change its timeout, it returns EINTR.
 */
static struct user_regs_struct resumed(const struct user_regs_struct *regs) {
    struct user_regs_struct r = *regs;
    long nr = (long)r.orig_rax, ret = (long)r.rax;

    r.orig_rax = (uint64_t)-1;
    if (nr < 0)
        return r;
    if (ret == -512 || ret == -513 || ret == -514) { /* ERESTARTSYS, NOINTR, NOHAND */
        r.rax = (uint64_t)nr;
        r.rip -= 2;
    } else if (ret == -516) /* ERESTART_RESTARTBLOCK: sigreturn loses the remaining timeout */
        r.rax = (uint64_t)-EINTR;
    return r;
}

#define SAME(name) .name = r.name
/* Builds the frame from the state that the thread gets back. Returns 0, or -E2BIG: more vector state than fits. */
static int build_frame(struct call *c) {
    struct user_regs_struct r = resumed(&c->t->regs);
    const uint8_t *x = (const uint8_t *)c->xstate;
    struct call_frame *f = &c->frame;
    uint64_t features, at;
    struct _fpx_sw_bytes sw = {.magic1 = FP_XSTATE_MAGIC1};
    uint32_t end = FP_XSTATE_MAGIC2;
    size_t size;
    struct frame g = {.return_address = c->code->restorer,
                      .uc_flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
                      .ss_flags = SS_INVALID,
                      .regs = {SAME(r8), SAME(r9), SAME(r10), SAME(r11), SAME(r12), SAME(r13),
                               SAME(r14), SAME(r15), SAME(rdi), SAME(rsi), SAME(rbp), SAME(rbx),
                               SAME(rdx), SAME(rax), SAME(rcx), SAME(rsp), SAME(rip), SAME(eflags)},
                      .sigmask = c->mask};
    g.regs.cs = (uint16_t)r.cs;
    g.regs.__pad0 = (uint16_t)r.ss; /* the field where the kernel keeps ss */

    if (c->xlen < XSAVE_MIN)
        return -E2BIG;
    features = load64(x + SW_RESERVED); /* XCR0, which the kernel stores there */
    if (!(load64(x + FX_SIZE) & AMX_DATA))
        features &= ~AMX; /* a thread that has not requested AMX may not restore it */
    size = xsave_size(features);
    if (size > c->xlen)
        return -E2BIG;
    at = (c->below - size - sizeof end) & ~63ull;
    g.regs.__fpstate_word = at;
    f->at = ((at - sizeof g) & ~15ull) - 8;
    f->n = (size_t)(at - f->at) + size + sizeof end;
    if (f->n > sizeof f->bytes)
        return -E2BIG;
    memset(f->bytes, 0, f->n);
    memcpy(f->bytes, &g, sizeof g);
    memcpy(f->bytes + (at - f->at), x, size);
    sw.extended_size = (uint32_t)(size + sizeof end);
    sw.xstate_bv = features;
    sw.xstate_size = (uint32_t)size;
    memcpy(f->bytes + (at - f->at) + SW_RESERVED, &sw, sizeof sw);
    memcpy(f->bytes + (at - f->at) + size, &end, sizeof end);
    return 0;
}

/* ---- the call ---- */

static uint64_t bit(int sig) {
    return 1ull << (sig - 1);
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
 * Returns the address of the thread's errno without calling __errno_location, which adds a number
 * from the C library's table (rip-relative) to the thread pointer, in one of two orders.
 */
static uint64_t find_errno(struct call *c) {
    unsigned char b[FS_BASE_INSNS], *p = b;
    uint64_t entry, offset;
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
    entry = c->code->errno_location + (uint64_t)(p + 4 - b) + (uint64_t)(int64_t)disp;
    if (stop_read(c->stop, entry, &offset, sizeof offset) < 0)
        return 0;
    return c->t->regs.fs_base + offset;
}

int call_begin(struct call *c, struct stop *s, size_t i, const struct call_code *code) {
    struct iovec iov = {c->xstate, sizeof c->xstate};

    *c = (struct call){.stop = s, .t = &s->v[i], .code = code};
    if (c->t->regs.cs != USER_CS)
        return -ENOTSUP;
    if (c->t->signal)
        return -EAGAIN; /* it is just taking a signal */
    if (ptrace(PTRACE_GETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
        ptrace(PTRACE_GETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0 ||
        ptrace(PTRACE_SETOPTIONS, c->t->tid, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) < 0)
        return -errno;
    c->xlen = iov.iov_len;
    c->below = c->t->regs.rsp - RED_ZONE;
    c->errno_at = find_errno(c);
    if (c->errno_at && stop_read(s, c->errno_at, &c->saved_errno, sizeof c->saved_errno) < 0)
        c->errno_at = 0;
    return 0;
}

int call_string(struct call *c, const char *s, uint64_t *addr) {
    size_t n = strlen(s) + 1;

    c->below -= n;
    *addr = c->below;
    return proc_write(c->stop->pid, c->below, s, n);
}

/*
 * After each step the thread would still end well by itself: the frame is in unused stack; once the registers are
 * set, the function is as good as called from a signal handler's frame; the mask is in the frame.
 */
static int start(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1) {
    struct user_regs_struct r = c->t->regs;
    /* If a fault signal is blocked, the kernel resets its handler when the fault comes. So these stay unblocked. */
    uint64_t mask = ~(bit(SIGTRAP) | bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) |
                      bit(SIGSYS) | bit(SIGABRT));
    int rc = build_frame(c);

    if (rc < 0)
        return rc;
    r.rip = fn;
    r.rdi = arg0;
    r.rsi = arg1;
    r.rax = 0;
    r.rsp = c->frame.at;
    r.orig_rax = (uint64_t)-1; /* else the kernel would restart the interrupted system call here */
    r.eflags &= ~(EFLAGS_TF | EFLAGS_DF);
    if (proc_write(c->stop->pid, c->frame.at, c->frame.bytes, c->frame.n) < 0)
        return -EFAULT;
    if (ptrace(PTRACE_SETREGS, c->t->tid, NULL, &r) < 0)
        return -errno;
    c->sp = c->frame.at;
    return ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof mask, &mask) < 0 ? -errno : 0;
}

/* Restores vector registers and mask, then the other registers. The system call that the thread is about to make is skipped. */
static int put_back(struct call *c, const struct user_regs_struct *regs) {
    struct iovec iov = {c->xstate, c->xlen};

    if (c->errno_at)
        proc_write(c->stop->pid, c->errno_at, &c->saved_errno, sizeof c->saved_errno);
    if (ptrace(PTRACE_SETREGSET, c->t->tid, (void *)NT_X86_XSTATE, &iov) < 0 ||
        ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0 ||
        ptrace(PTRACE_SETREGS, c->t->tid, NULL, regs) < 0)
        return -errno;
    return 0;
}

/* Whether a step's SIGTRAP was sent but not reported, because the stop that we requested came first. Without a tracer it would kill the process. */
static int step_is_pending(const struct call *c) {
    return (proc_status_number(c->stop->pid, c->t->tid, "SigPnd", 16) & bit(SIGTRAP)) != 0;
}

/* Brings the thread, stopped or running, to a stop that is not at a system call. When it goes on from there, the
 * kernel handles an interrupted system call once more. */
static int bring_to_stop(struct call *c, int running) {
    uint64_t deadline = sys_now() + INTERRUPT_NS;
    int st, rc;

    if (ptrace(PTRACE_INTERRUPT, c->t->tid, NULL, NULL) < 0 ||
        (!running && ptrace(PTRACE_CONT, c->t->tid, NULL, NULL) < 0))
        return -errno;
    for (;;) {
        rc = stop_wait(c->t, &st, deadline);
        if (rc < 0)
            return rc;
        if (st >> 16 == PTRACE_EVENT_STOP ? !step_is_pending(c) : WSTOPSIG(st) != SYSCALL_STOP)
            return 0;
        ptrace(PTRACE_CONT, c->t->tid, NULL, NULL);
    }
}

/* The thread is about to enter rt_sigreturn, so the call has returned. */
static int returned(struct call *c) {
    struct user_regs_struct r = resumed(&c->t->regs);
    int rc = 0;

    c->sp = 0;
    /* A seccomp filter would see the skipped call, so under a filter let the kernel run rt_sigreturn. */
    if (!c->code->filtered)
        rc = put_back(c, &r);
    if (rc == 0)
        rc = bring_to_stop(c, 0);
    return rc;
}

/* Judges a stop of the calling thread. Returns 0: the call has returned; -EAGAIN: let it go on; -EFAULT: it crashed. */
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
        /* A call that is not watched may have returned: then the stack pointer is above the frame. */
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
    if (sig == SIGSTOP) { /* it cannot be held back: deliver it when we are done */
        c->t->signal = SIGSTOP;
        return -EAGAIN;
    }
    return -EFAULT;
}

/* Lets the thread go on, in the mode that the call needs. */
static int go_on(const struct call *c, int stepping) {
    int how = stepping                      ? PTRACE_SINGLESTEP
              : c->until_clone && !c->child ? PTRACE_CONT
                                            : PTRACE_SYSCALL;

    return ptrace(how, c->t->tid, NULL, NULL) < 0 ? -errno : 0;
}

/* Waits for the next stop. A thread that is not watched is interrupted now and then. */
static int next_stop(struct call *c, int *st, uint64_t deadline) {
    int rc;

    for (;;) {
        uint64_t soon = sys_now() + UNWATCHED_NS;
        int ask = c->until_clone && !c->child && soon < deadline;
        rc = stop_wait(c->t, st, ask ? soon : deadline);
        if (rc != -ETIMEDOUT || !ask)
            return rc;
        ptrace(PTRACE_INTERRUPT, c->t->tid, NULL, NULL);
    }
}

int call_function(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1, int timeout_ms,
                  uint64_t *result) {
    uint64_t deadline = sys_now() + (uint64_t)timeout_ms * 1000000u;
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
        /* The function has crashed or was stepped through (and is stopped), or still runs. */
        unfinished = ptrace(PTRACE_GETSIGINFO, c->t->tid, NULL, &si) < 0;
        if (unfinished)
            rc = bring_to_stop(c, 1);
        /* Let it end by itself, with the thread's own signal mask. */
        if (unfinished && rc == 0 &&
            ptrace(PTRACE_SETSIGMASK, c->t->tid, (void *)sizeof c->mask, &c->mask) < 0)
            rc = -errno;
    }
    if (c->t->stopped && rc == 0 && !unfinished && !c->left) {
        struct user_regs_struct r = c->t->regs;
        /* With a filter rt_sigreturn has run; after it a timeout cannot be continued. */
        if (c->code->filtered && (long)r.orig_rax >= 0 && (long)r.rax == -516)
            r = resumed(&r);
        rc = put_back(c, &r);
    }
    if (!c->t->stopped)
        rc = -ESRCH;
    else if (rc == -ETIMEDOUT)
        c->t->stopped = 0;
    return rc;
}
