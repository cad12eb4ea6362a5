/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/cfi_program.h"

#include <dwarf.h>
#include <errno.h>
#include <string.h>

/* ---- numbers ---- */

void cfi_cursor_set(struct cfi_cursor *c, const struct cfi_memory *mem, uint64_t at, uint64_t end) {
    c->mem = mem;
    c->at = at;
    c->end = end;
    c->have = 0;
    c->base = 0;
    c->status = 0;
}

/* Takes n bytes, at most the size of the window. */
static void take_bytes(struct cfi_cursor *c, void *buf, size_t n) {
    if (!c->status && (c->at > c->end || n > c->end - c->at))
        c->status = -EBADMSG;
    if (!c->status && (c->at < c->base || c->at + n > c->base + c->have)) {
        uint64_t want = c->end - c->at;
        if (want > sizeof c->window)
            want = sizeof c->window;
        c->have = 0;
        c->base = c->at;
        c->status = c->mem->read(c->mem->ctx, c->at, c->window, want);
        if (!c->status)
            c->have = (uint32_t)want;
    }
    if (c->status) {
        memset(buf, 0, n);
        return;
    }
    memcpy(buf, c->window + (c->at - c->base), n);
    c->at += n;
}

uint64_t cfi_take_u(struct cfi_cursor *c, size_t n) {
    uint64_t v = 0;
    take_bytes(c, &v, n); /* little-endian, as x86-64 is */
    return v;
}

/* Takes a LEB128 number. *bits: the number of bits that it had. */
static uint64_t take_leb(struct cfi_cursor *c, unsigned *bits) {
    uint64_t v = 0;
    for (*bits = 0; *bits < 70 && !c->status;) {
        uint64_t b = cfi_take_byte(c);
        if (*bits < 64)
            v |= (b & 0x7f) << *bits;
        *bits += 7;
        if (!(b & 0x80))
            return v;
    }
    c->status = c->status ? c->status : -EBADMSG;
    return 0;
}

uint64_t cfi_take_uleb(struct cfi_cursor *c) {
    unsigned bits;
    return take_leb(c, &bits);
}

int64_t cfi_take_sleb(struct cfi_cursor *c) {
    unsigned bits;
    uint64_t v = take_leb(c, &bits);
    return cfi_extend(v, bits);
}

uint64_t cfi_take_encoded(struct cfi_cursor *c, uint8_t enc, uint64_t data) {
    static const uint8_t bytes[8] = {[DW_EH_PE_absptr] = 8, [DW_EH_PE_udata2] = 2, 4, 8};
    uint64_t here = c->at, v = 0, size = bytes[enc & 0x07];
    if (size) {
        v = cfi_take_u(c, size);
        if (enc & DW_EH_PE_signed)
            v = (uint64_t)cfi_extend(v, 8 * (unsigned)size);
    } else if ((enc & 0x0f) == DW_EH_PE_uleb128) {
        v = cfi_take_uleb(c);
    } else if ((enc & 0x0f) == DW_EH_PE_sleb128) {
        v = (uint64_t)cfi_take_sleb(c);
    } else {
        c->status = c->status ? c->status : -ENOTSUP;
    }
    if ((enc & 0x70) == DW_EH_PE_pcrel)
        v += here;
    else if ((enc & 0x70) == DW_EH_PE_datarel)
        v += data;
    else if (enc & 0x70)
        c->status = c->status ? c->status : -ENOTSUP;
    if (enc & DW_EH_PE_indirect) {
        uint64_t p = 0;
        if (!c->status)
            c->status = c->mem->read(c->mem->ctx, v, &p, sizeof p);
        v = p;
    }
    return c->status ? 0 : v;
}

/* ---- rows ---- */

enum { RBP, RBX, RA, OTHER, TRACKED }; /* OTHER: any register that is not needed */
#define UNDEFINED INT32_MAX            /* the return address of the outermost frame */
#define ELSEWHERE 0                    /* the return address is not at CFA - 8 */

struct row {
    enum cfi_kind kind;
    unsigned reg;
    int64_t off;
    int32_t at[TRACKED]; /* where the registers were saved: offset from the CFA, or CFI_KEPT */
    int32_t rbp_reg_off; /* rbp saved at rbp + this (a realigned stack), or CFI_KEPT */
    uint8_t only_here;   /* the CFA depends on the program counter */
};

static unsigned tracked(uint64_t reg) {
    return reg == CFI_RBP ? RBP : reg == CFI_RBX ? RBX : reg == CFI_RA ? RA : OTHER;
}

/* CFA expressions that compilers and linkers really write: reg+n; *(reg+n); the PLT's rsp+8 + ((rip & 15) >= k) * 8, which is a constant once pc is known. */
static void cfa_expression(struct cfi_cursor *c, uint64_t pc, struct row *row) {
    uint64_t len = cfi_take_uleb(c), start = c->at;
    uint8_t op = cfi_take_byte(c);
    row->kind = CFI_NONE;
    if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
        unsigned reg = op - (unsigned)DW_OP_breg0;
        int64_t off = cfi_take_sleb(c);
        uint8_t e[12] = "";
        uint64_t rest = start + len - c->at;
        if (!c->status && rest <= sizeof e) {
            take_bytes(c, e, rest);
            row->reg = reg;
            row->off = off;
            if (rest == 0)
                row->kind = CFI_OFFSET;
            else if (rest == 1 && e[0] == DW_OP_deref)
                row->kind = CFI_DEREF;
            else if (rest == 9 && e[0] == DW_OP_breg16 && e[1] == 0 && e[2] == DW_OP_lit15 &&
                     e[3] == DW_OP_and && e[4] >= DW_OP_lit0 && e[4] <= DW_OP_lit31 &&
                     e[5] == DW_OP_ge && e[6] == DW_OP_lit3 && e[7] == DW_OP_shl &&
                     e[8] == DW_OP_plus) {
                row->kind = CFI_OFFSET;
                row->only_here = 1;
                row->off += (pc & 15) >= (unsigned)(e[4] - DW_OP_lit0) ? 8 : 0;
            }
        }
    }
    c->at = start + len;
}

/* Notes where a register was saved. reg_off: for rbp only. */
static void set_saved(struct row *row, uint64_t reg, int32_t off, int32_t reg_off) {
    row->at[tracked(reg)] = off;
    if (reg == CFI_RBP)
        row->rbp_reg_off = reg_off;
}

/* Notes where a register was saved according to an expression. For rbp, only the form rbp + n is known. */
static void saved_expression(struct cfi_cursor *c, int address, struct row *row) {
    uint64_t reg = cfi_take_uleb(c), len = cfi_take_uleb(c), start = c->at;
    if (address && reg == CFI_RBP && cfi_take_byte(c) == DW_OP_breg0 + CFI_RBP) {
        set_saved(row, reg, CFI_KEPT, (int32_t)cfi_take_sleb(c));
    } else if (reg == CFI_RA) {
        row->at[RA] = ELSEWHERE;
    }
    c->at = start + len;
}

static int64_t take_cfa_offset(struct cfi_cursor *c, const struct cfi_cie *cie, int factored) {
    return factored ? cfi_take_sleb(c) * cie->data_align : (int64_t)cfi_take_uleb(c);
}

#define STATES  8
#define PRIMARY 0xc0u /* bits of an opcode: if one is set, the other six are its operand */
/* Runs instructions up to the row that covers pc; sets *span to that row's range. `first`: the CIE's row; NULL while that row is made. */
static int execute(struct cfi_cursor *c, const struct cfi_cie *cie, uint64_t pc, struct row *row,
                   const struct row *first, struct cfi_span *span) {
    struct row stack[STATES];
    unsigned depth = 0;
    uint64_t loc = span->lo;
    while (!c->status && c->at < c->end) {
        uint8_t op = cfi_take_byte(c);
        uint64_t reg, advance = 0;
        int64_t off;
        switch (op & PRIMARY ? op & PRIMARY : op) {
        case DW_CFA_advance_loc:
            advance = (op & ~PRIMARY) * cie->code_align;
            break;
        case DW_CFA_nop:
            break;
        case DW_CFA_set_loc:
            loc = cfi_take_encoded(c, cie->fde_enc, 0);
            if (loc > pc)
                goto passed;
            span->lo = loc;
            break;
        case DW_CFA_advance_loc1:
        case DW_CFA_advance_loc2:
        case DW_CFA_advance_loc4:
            advance = cfi_take_u(c, (size_t)1 << (op - DW_CFA_advance_loc1)) * cie->code_align;
            break;
        case DW_CFA_offset:
        case DW_CFA_offset_extended:
        case DW_CFA_offset_extended_sf:
            reg = op & PRIMARY ? op & ~PRIMARY : cfi_take_uleb(c);
            off = op == DW_CFA_offset_extended_sf ? cfi_take_sleb(c) : (int64_t)cfi_take_uleb(c);
            off *= cie->data_align;
            if (off < -(1 << 30) || off > (1 << 30))
                off = 0; /* absurd: leads to a value that is checked like any other */
            set_saved(row, reg, (int32_t)off, CFI_KEPT);
            break;
        case DW_CFA_restore:
        case DW_CFA_restore_extended:
            reg = op & PRIMARY ? op & ~PRIMARY : cfi_take_uleb(c);
            if (first)
                set_saved(row, reg, first->at[tracked(reg)], first->rbp_reg_off);
            break;
        case DW_CFA_undefined:
            if (cfi_take_uleb(c) == CFI_RA)
                row->at[RA] = UNDEFINED;
            break;
        case DW_CFA_same_value:
            set_saved(row, cfi_take_uleb(c), CFI_KEPT, CFI_KEPT);
            break;
        case DW_CFA_register: /* saved in another register: that one is not tracked */
            if (cfi_take_uleb(c) == CFI_RA)
                row->at[RA] = ELSEWHERE;
            cfi_take_uleb(c);
            break;
        case DW_CFA_remember_state:
            if (depth == STATES)
                return -ENOTSUP;
            stack[depth++] = *row;
            break;
        case DW_CFA_restore_state:
            if (depth == 0)
                return -EBADMSG;
            *row = stack[--depth];
            break;
        case DW_CFA_def_cfa:
        case DW_CFA_def_cfa_sf:
        case DW_CFA_def_cfa_register:
            row->kind = CFI_OFFSET;
            row->reg = (unsigned)cfi_take_uleb(c);
            if (op != DW_CFA_def_cfa_register)
                row->off = take_cfa_offset(c, cie, op == DW_CFA_def_cfa_sf);
            break;
        case DW_CFA_def_cfa_offset:
        case DW_CFA_def_cfa_offset_sf:
            row->off = take_cfa_offset(c, cie, op == DW_CFA_def_cfa_offset_sf);
            break;
        case DW_CFA_def_cfa_expression:
            cfa_expression(c, pc, row);
            break;
        case DW_CFA_expression:
        case DW_CFA_val_expression:
            saved_expression(c, op == DW_CFA_expression, row);
            break;
        case DW_CFA_val_offset:
        case DW_CFA_val_offset_sf:
            cfi_take_uleb(c);
            cfi_take_uleb(c);
            break;
        case DW_CFA_GNU_args_size:
            cfi_take_uleb(c);
            break;
        default:
            return -ENOTSUP;
        }
        if (advance) {
            loc += advance;
            if (loc > pc)
                goto passed;
            span->lo = loc;
        }
    }
    return c->status;
passed:
    span->hi = loc;
    return c->status;
}

static int rule_of_row(const struct row *row, const struct cfi_cie *cie, struct cfi_rule *rule) {
    memset(rule, 0, sizeof *rule);
    if (cie->signal || row->at[RA] == UNDEFINED) {
        rule->kind = cie->signal ? CFI_SIGNAL : CFI_END;
        rule->reg = cie->signal ? CFI_RSP : 0;
        rule->rbp_off = rule->rbx_off = CFI_KEPT;
        return 0;
    }
    if (row->kind == CFI_NONE || row->at[RA] != -8 || row->off < -(1 << 30) || row->off > (1 << 30))
        return -ENOTSUP;
    if (row->reg != CFI_RSP && row->reg != CFI_RBP && row->reg != CFI_RBX && row->reg != CFI_R10)
        return -ENOTSUP;
    rule->kind = row->kind;
    rule->reg = row->reg;
    rule->cfa_off = (int32_t)row->off;
    rule->rbp_off = row->at[RBP];
    rule->rbx_off = row->at[RBX];
    if (row->kind == CFI_DEREF)
        rule->rbp_off = row->reg == CFI_RBP ? row->rbp_reg_off : CFI_KEPT;
    return 0;
}

int cfi_program_rule(const struct cfi_cie *cie, struct cfi_cursor *fde, uint64_t pc,
                     struct cfi_rule *rule, struct cfi_span *span) {
    struct row row = {
        .kind = CFI_NONE, .at = {CFI_KEPT, CFI_KEPT, -8, CFI_KEPT}, .rbp_reg_off = CFI_KEPT};
    struct cfi_cursor init;
    struct cfi_span none = {0, 0};
    cfi_cursor_set(&init, fde->mem, cie->insns, cie->insns_end);
    int rc = execute(&init, cie, UINT64_MAX, &row, NULL, &none);
    if (rc)
        return rc;
    struct row first = row;
    rc = execute(fde, cie, pc, &row, &first, span);
    if (row.only_here)
        *span = (struct cfi_span){pc, pc + 1};
    return rc ? rc : rule_of_row(&row, cie, rule);
}
