/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi_program.h - executing the instructions of an entry of .eh_frame up to the row that covers a program counter, and
 * that row as a rule (cfi.h). For cfi.c, which finds the entry.
 *
 * Source: the DWARF 5 standard, sections 6.4.2 and 6.4.3, and the x86-64 psABI's register numbers.
 */
#ifndef PROBING_AGENT_CFI_PROGRAM_H
#define PROBING_AGENT_CFI_PROGRAM_H

#include "agent/unwind/cfi_cursor.h"

/* What the entries that share a CIE have in common. */
struct cfi_cie {
    uint64_t insns, insns_end; /* the instructions that make the first row */
    uint64_t code_align;
    int64_t data_align;
    uint8_t fde_enc; /* DW_EH_PE of the entries' addresses */
    uint8_t signal;  /* a signal frame */
    uint8_t has_z;   /* the entries say how long their augmentation is */
};

/*
 * The rule for `pc`. `fde`: at the entry's own instructions. *span: the entry's; becomes that of the rule. 0; -ENOTSUP: an
 * instruction, expression or register this does not know; -EBADMSG, -EFAULT. Async-signal-safe.
 */
int cfi_program_rule(const struct cfi_cie *cie, struct cfi_cursor *fde, uint64_t pc,
                     struct cfi_rule *rule, struct cfi_span *span);

#endif
