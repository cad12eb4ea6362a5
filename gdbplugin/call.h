/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - runs a function of the target on one of its stopped threads and then restores the thread: all registers
 * (vector registers too), the interrupted system call, the signal mask, errno.
 *
 *     call_begin(&c, &stop, i, &code);
 *     call_string(&c, "/tmp/x.so", &addr);            // below the stack pointer and the red zone
 *     rc = call_function(&c, dlopen, addr, RTLD_NOW, 1000, NULL);
 *     call_end(&c);
 *
 * Only that thread runs meanwhile, with asynchronous signals held back; they are delivered afterwards. The function returns into a signal frame (struct
 * call_frame): if the injector dies at any time, the kernel releases the thread, the function returns, and rt_sigreturn restores everything. While the injector
 * lives, it sees the thread enter rt_sigreturn (PTRACE_SYSCALL) and restores the registers itself, so that the interrupted system call keeps its timeout. Stops
 * at each system call slow the call down, so with `until_clone` (the function's last act is to start a thread) it runs untraced until that clone. No code is
 * written, no breakpoint is set, no signal is sent to the target. Call from the thread that made the stop.
 */
#ifndef PROBING_INSPECT_CALL_H
#define PROBING_INSPECT_CALL_H

#include "stop.h"

#define CALL_XSTATE 16384

/* Addresses in the target's C library, and what else the call must know. */
struct call_code {
    uint64_t restorer;       /* "mov $15, %rax; syscall" */
    uint64_t errno_location; /* 0: errno is not restored */
    int filtered;            /* a seccomp filter is active: let the kernel run rt_sigreturn */
    int no_steps;            /* SIGTRAP is ignored: single steps would reset that */
};

/* The frame that the called function returns into. Its first word is the return address: the restorer. */
#define CALL_FRAME_MAX 20480
struct call_frame {
    uint64_t at; /* 8 below a multiple of 16, as after a call */
    size_t n;
    unsigned char bytes[CALL_FRAME_MAX];
};

struct call {
    struct stop *stop;
    struct stop_thread *t;
    const struct call_code *code;
    uint64_t below; /* we write to the stack below this address */
    uint64_t sp;    /* stack pointer of the call in progress, or 0 */
    uint64_t mask;  /* the thread's signal mask */
    uint64_t errno_at;
    int saved_errno;
    int until_clone; /* set it after call_begin(): PTRACE_O_TRACECLONE is on */
    pid_t child;     /* the thread that the call started, held until stop_adopt(); 0: none */
    int left;        /* it returned unwatched without starting a thread, and runs on by itself */
    size_t xlen;
    char xstate[CALL_XSTATE]; /* NT_X86_XSTATE: the thread's vector registers */
    struct call_frame frame;
};

/* Finds the restorer in the mapped code of the library at `base`. Returns 0 or -ENOENT. */
int call_find_restorer(pid_t pid, const struct proc_maps *maps, uint64_t base, uint64_t *addr);

/* Returns 0, or -errno with nothing changed. -ENOTSUP: the thread does not run 64-bit code. */
int call_begin(struct call *c, struct stop *s, size_t i, const struct call_code *code);
/* Copies s to the stack below what the thread uses; *addr gets its address. Returns 0 or -EFAULT. */
int call_string(struct call *c, const char *s, uint64_t *addr);
/*
 * Returns 0 when the function has returned. With `result` the thread is single-stepped through it to get its value: for small functions
 * only (-ENOTSUP when that is impossible). -EFAULT: the function crashed (the crash is contained; call_end() restores the thread);
 * -ETIMEDOUT: it still runs after timeout_ms; call again with fn 0 to wait on. -ESRCH: the process ended meanwhile.
 */
int call_function(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1, int timeout_ms,
                  uint64_t *result);
/* Restores the thread; it stays stopped. A call that has not returned is left to end by itself, which then restores the thread. Returns 0 or -errno. */
int call_end(struct call *c);

#endif
