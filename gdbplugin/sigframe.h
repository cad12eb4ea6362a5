/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sigframe.h - a signal frame as the kernel would have pushed it: what a called function returns into, so that the
 * kernel itself puts the thread back (rt_sigreturn), whether or not we are still there to see it.
 *
 *     struct sigframe f;
 *     rc = sigframe_build(&f, &regs, mask, xstate, xlen, below, restorer);
 *     ... write f.n bytes of f.bytes to f.at; call with the stack pointer f.at ...
 *
 * The frame's first word is the return address: `restorer`, the code "mov $15, %rax; syscall" of the C library. The
 * layout is struct rt_sigframe of Linux on x86-64 (arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h).
 * Pure functions.
 */
#ifndef PROBING_INSPECT_SIGFRAME_H
#define PROBING_INSPECT_SIGFRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/user.h>

#define SIGFRAME_MAX 20480

struct sigframe {
    uint64_t at; /* 8 below a multiple of 16, as after a call */
    size_t n;
    unsigned char bytes[SIGFRAME_MAX];
};

/*
 * regs, mask (blocked signals), xstate (NT_X86_XSTATE, xlen bytes): what the thread gets back, its interrupted
 * system call dealt with as sigframe_resumed() says. below: the frame lies under this address.
 * 0, or -E2BIG: more vector state than there is room for.
 */
int sigframe_build(struct sigframe *f, const struct user_regs_struct *regs, uint64_t mask,
                   const void *xstate, size_t xlen, uint64_t below, uint64_t restorer);

/*
 * Registers with which a thread goes on by itself where the kernel will not look at its interrupted system call
 * any more: the call is made again, or, when that would change its timeout, it returns EINTR.
 */
struct user_regs_struct sigframe_resumed(const struct user_regs_struct *regs);

#endif
