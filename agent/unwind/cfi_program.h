/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi_program.h - reads the encodings of .eh_frame, and executes the instructions of an entry up to the row that covers a program
 * counter, which it returns as a rule. For cfi.c, which finds the entry. Nothing here locks or allocates: async-signal-safe.
 *
 *     struct cfi_cursor c;                                // on the stack: a small window that moves forward
 *     cfi_cursor_set(&c, mem, at, end);
 *     a = cfi_take_uleb(&c); b = cfi_take_u(&c, 4);
 *     if (c.status) ...
 *
 * The status is sticky: after an error (-EBADMSG: beyond the end, -EFAULT, -ENOTSUP: an unknown encoding) all values taken
 * are 0, so the caller can check once after several.
 *
 * Source: the DWARF 5 standard, sections 6.4.2 and 6.4.3, and the x86-64 psABI's register numbers.
 */
#ifndef PROBING_AGENT_CFI_PROGRAM_H
#define PROBING_AGENT_CFI_PROGRAM_H

#include "agent/unwind/cfi_rule.h"

struct cfi_cursor {
    const struct cfi_memory *mem;
    uint64_t at, end; /* next byte; first byte not to be read */
    uint64_t base;    /* address of window[0] */
    uint32_t have;
    int status;
    uint8_t window[64];
};

void cfi_cursor_set(struct cfi_cursor *c, const struct cfi_memory *mem, uint64_t at, uint64_t end);
/* Returns the signed number in the lowest `bits` bits of v. */
static inline int64_t cfi_extend(uint64_t v, unsigned bits) {
    return bits && bits < 64 ? (int64_t)(v << (64 - bits)) >> (64 - bits) : (int64_t)v;
}
/* Takes a number of n bytes (1 to 8); cfi_take_uleb() and cfi_take_sleb() take one in LEB128. */
uint64_t cfi_take_u(struct cfi_cursor *c, size_t n);
/* The same as cfi_take_u(c, 1), but fast for a byte in the window, as most are. */
static inline uint8_t cfi_take_byte(struct cfi_cursor *c) {
    uint64_t i = c->at - c->base;
    if (!c->status && i < c->have && c->at < c->end) {
        c->at++;
        return c->window[i];
    }
    return (uint8_t)cfi_take_u(c, 1);
}
uint64_t cfi_take_uleb(struct cfi_cursor *c);
int64_t cfi_take_sleb(struct cfi_cursor *c);
/* Takes a pointer in one of the DW_EH_PE encodings. `data`: base of datarel. */
uint64_t cfi_take_encoded(struct cfi_cursor *c, uint8_t enc, uint64_t data);

/* A CIE: the data that several entries share. */
struct cfi_cie {
    uint64_t insns, insns_end; /* the instructions that make the first row */
    uint64_t code_align;
    int64_t data_align;
    uint8_t fde_enc; /* DW_EH_PE of the entries' addresses */
    uint8_t signal;  /* a signal frame */
    uint8_t has_z;   /* the entries have the length of their augmentation */
};

/*
 * Finds the rule for `pc`. `fde`: cursor at the entry's own instructions. *span: the entry's range; becomes the rule's. Returns 0;
 * -ENOTSUP: an unknown instruction, expression or register; -EBADMSG; -EFAULT.
 */
int cfi_program_rule(const struct cfi_cie *cie, struct cfi_cursor *fde, uint64_t pc,
                     struct cfi_rule *rule, struct cfi_span *span);

#endif
