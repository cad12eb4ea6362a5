/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - runs functions of the target on one of its stopped threads and puts the thread back as it was:
 * all registers (vector registers too), the interrupted system call, the signal mask, errno's value is the
 * caller's matter (call `__errno_location`, read before, write after).
 *
 *     call_begin(&c, &stop, i, trap);
 *     call_string(&c, "/tmp/x.so", &addr);            // below the stack pointer and the red zone
 *     rc = call_function(&c, dlopen, addr, RTLD_NOW, 1000, &result);
 *     call_end(&c);
 *
 * Only that thread runs meanwhile, with asynchronous signals held back; they are delivered afterwards. The
 * function returns to `trap`, the address of a byte 0xCC in executable memory (call_find_trap): nothing is
 * written to code. Same thread of ours as for the stop. No signal is ever sent to the target.
 */
#ifndef PROBING_INSPECT_CALL_H
#define PROBING_INSPECT_CALL_H

#include "proc.h"
#include "stop.h"

#define CALL_XSTATE 16384

struct call {
    struct stop *stop;
    struct stop_thread *t;
    uint64_t trap, sp;
    uint64_t mask; /* its signal mask */
    int mem;       /* /proc/PID/mem */
    size_t xlen;
    char xstate[CALL_XSTATE];
};

/* A byte 0xCC in the mapped code of the library at `base`. 0 or -ENOENT. */
int call_find_trap(pid_t pid, const struct proc_maps *maps, uint64_t base, uint64_t *addr);

/* 0, or -errno with nothing changed. -ENOTSUP: no 64-bit code. */
int call_begin(struct call *c, struct stop *s, size_t i, uint64_t trap);
int call_string(struct call *c, const char *s, uint64_t *addr);
/*
 * 0 with *result. -EFAULT: the function crashed (the crash is contained; the thread is restored by call_end());
 * -ETIMEDOUT: it has not returned after timeout_ms: it still runs; call again with fn 0 to wait on.
 * -ESRCH: the process ended meanwhile.
 */
int call_function(struct call *c, uint64_t fn, uint64_t arg0, uint64_t arg1, int timeout_ms,
                  uint64_t *result);
int call_write(struct call *c, uint64_t addr, const void *buf, size_t n);
/* Restores the thread; it stays stopped. 0 or -errno. */
int call_end(struct call *c);

#endif
