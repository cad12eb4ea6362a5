/* SPDX-License-Identifier: Apache-2.0 */
#include "sigframe.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>

#define FX_SIZE     512
#define XSAVE_MIN   576 /* FX_SIZE and the header */
#define SW_RESERVED 464 /* in the FX part: what the kernel notes for itself */
#define MAGIC1      0x46505853u
#define MAGIC2      0x46505845u
#define AMX         (3ull << 17)
#define AMX_DATA    (1ull << 18)

#define UC_FP_XSTATE         1u
#define UC_SIGCONTEXT_SS     2u
#define UC_STRICT_RESTORE_SS 4u
#define SS_INVALID           0x7fff /* the kernel leaves the alternate stack as it is */

struct frame {
    uint64_t return_address;
    uint64_t uc_flags, uc_link;
    uint64_t ss_sp;
    uint32_t ss_flags, ss_pad;
    uint64_t ss_size;
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
    uint64_t di, si, bp, bx, dx, ax, cx, sp, ip, flags;
    uint16_t cs, gs, fs, ss;
    uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8];
    uint64_t sigmask;
    char siginfo[128];
};
_Static_assert(offsetof(struct frame, r8) == 8 + 40, "ucontext: flags, link and stack come first");
_Static_assert(offsetof(struct frame, sigmask) == 8 + 40 + 256, "struct sigcontext has 256 bytes");

static uint64_t load64(const void *p) {
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Bytes that the state components `features` take in the standard format of XSAVE. */
static size_t xsave_size(uint64_t features) {
    size_t size = XSAVE_MIN;

    for (unsigned i = 2; i < 63; i++) {
        unsigned a, b, c, d;
        if (features >> i & 1 && __get_cpuid_count(0xd, i, &a, &b, &c, &d) && a + b > size)
            size = a + b;
    }
    return size;
}

struct user_regs_struct sigframe_resumed(const struct user_regs_struct *regs) {
    struct user_regs_struct r = *regs;
    long nr = (long)r.orig_rax, ret = (long)r.rax;

    r.orig_rax = (uint64_t)-1;
    if (nr < 0)
        return r;
    if (ret == -512 || ret == -513 || ret == -514) { /* ERESTARTSYS, NOINTR, NOHAND */
        r.rax = (uint64_t)nr;
        r.rip -= 2;
    } else if (ret ==
               -516) /* ERESTART_RESTARTBLOCK: what is left of its time is gone with sigreturn */
        r.rax = (uint64_t)-EINTR;
    return r;
}

int sigframe_build(struct sigframe *f, const struct user_regs_struct *regs, uint64_t mask,
                   const void *xstate, size_t xlen, uint64_t below, uint64_t restorer) {
    struct user_regs_struct r = sigframe_resumed(regs);
    const char *x = xstate;
    uint64_t features, at;
    uint32_t sw[12] = {MAGIC1}; /* magic1, extended_size, xfeatures, xstate_size, padding */
    uint32_t end = MAGIC2;
    size_t size;
    struct frame g = {.return_address = restorer,
                      .uc_flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
                      .ss_flags = SS_INVALID,
                      .r8 = r.r8,
                      .r9 = r.r9,
                      .r10 = r.r10,
                      .r11 = r.r11,
                      .r12 = r.r12,
                      .r13 = r.r13,
                      .r14 = r.r14,
                      .r15 = r.r15,
                      .di = r.rdi,
                      .si = r.rsi,
                      .bp = r.rbp,
                      .bx = r.rbx,
                      .dx = r.rdx,
                      .ax = r.rax,
                      .cx = r.rcx,
                      .sp = r.rsp,
                      .ip = r.rip,
                      .flags = r.eflags,
                      .cs = (uint16_t)r.cs,
                      .ss = (uint16_t)r.ss,
                      .sigmask = mask};

    if (xlen < XSAVE_MIN)
        return -E2BIG;
    features = load64(x + SW_RESERVED); /* XCR0, as the kernel gives it there */
    if (!(load64(x + FX_SIZE) & AMX_DATA))
        features &= ~AMX; /* a thread that has not asked for AMX may not restore it */
    size = xsave_size(features);
    if (size > xlen)
        return -E2BIG;
    at = (below - size - sizeof end) & ~63ull;
    g.fpstate = at;
    f->at = ((at - sizeof g) & ~15ull) - 8;
    f->n = (size_t)(at - f->at) + size + sizeof end;
    if (f->n > sizeof f->bytes)
        return -E2BIG;
    memset(f->bytes, 0, f->n);
    memcpy(f->bytes, &g, sizeof g);
    memcpy(f->bytes + (at - f->at), x, size);
    sw[1] = (uint32_t)(size + sizeof end);
    memcpy(sw + 2, &features, sizeof features);
    sw[4] = (uint32_t)size;
    memcpy(f->bytes + (at - f->at) + SW_RESERVED, sw, sizeof sw);
    memcpy(f->bytes + (at - f->at) + size, &end, sizeof end);
    return 0;
}
