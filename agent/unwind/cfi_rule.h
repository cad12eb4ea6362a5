/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi_rule.h - the part of a row of call frame information that a stack walk needs: how the CFA is computed, and where rbp and rbx were
 * saved, on which outer CFAs may depend. Also the callback by which cfi_program.h and cfi.h read memory.
 */
#ifndef PROBING_AGENT_CFI_RULE_H
#define PROBING_AGENT_CFI_RULE_H

#include <stddef.h>
#include <stdint.h>

/* `read` copies n bytes at `addr` into buf and returns 0 or -EFAULT (like pywalk_read_fn). `direct`: it is our own memory, and a
 * page that was read once may be read directly until the walk ends. */
struct cfi_memory {
    int (*read)(void *ctx, uint64_t addr, void *buf, size_t n);
    void *ctx;
    int direct;
};

/* DWARF numbers of the registers that rules use. */
enum { CFI_RBX = 3, CFI_RBP = 6, CFI_RSP = 7, CFI_R10 = 10, CFI_RA = 16 };

enum cfi_kind {
    CFI_NONE,   /* no rule known: the walk is cut here */
    CFI_OFFSET, /* CFA = reg + cfa_off; the return address lies at CFA - 8 */
    CFI_DEREF,  /* CFA = the word at reg + cfa_off (a realigned stack) */
    CFI_SIGNAL, /* the kernel's signal frame: the registers are in the ucontext at rsp */
    CFI_END,    /* outermost frame: the return address is undefined */
};

#define CFI_KEPT INT32_MIN /* the register still has its value */
struct cfi_rule {
    enum cfi_kind kind;
    unsigned reg; /* CFI_RBX, CFI_RBP, CFI_RSP or CFI_R10 */
    int32_t cfa_off;
    int32_t rbp_off, rbx_off; /* saved at CFA + off; with CFI_DEREF rbp at reg + off; or CFI_KEPT */
};

/* The range of program counters for which a rule holds. */
struct cfi_span {
    uint64_t lo, hi; /* hi: the first one after the range */
};

#endif
