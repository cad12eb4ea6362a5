/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: the DWARF 5 standard, section 6.4, and the Linux Standard Base's description of
 * .eh_frame and .eh_frame_hdr.
 */
#include "cfi.h"

#include <errno.h>
#include <string.h>

/* ---- reading: a small window that moves forward; the status is sticky ---- */
struct cursor {
    const struct cfi_memory *mem;
    uint64_t at, end; /* next byte; first byte not to be read */
    uint64_t base;    /* address of window[0] */
    uint32_t have;
    int status;
    uint8_t window[64];
};

static void cursor_set(struct cursor *c, const struct cfi_memory *mem, uint64_t at, uint64_t end) {
    c->mem = mem;
    c->at = at;
    c->end = end;
    c->have = 0;
    c->base = 0;
    c->status = 0;
}

static void take(struct cursor *c, void *buf, size_t n) {
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

static uint64_t take_u(struct cursor *c, size_t n) {
    uint64_t v = 0;
    take(c, &v, n); /* little-endian, as x86-64 is */
    return v;
}

static int64_t take_s(struct cursor *c, size_t n) {
    uint64_t v = take_u(c, n);
    unsigned shift = 64 - 8 * (unsigned)n;
    return (int64_t)(v << shift) >> shift;
}

static uint64_t take_uleb(struct cursor *c) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && !c->status; shift += 7) {
        uint64_t b = take_u(c, 1);
        if (shift < 64)
            v |= (b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    c->status = c->status ? c->status : -EBADMSG;
    return 0;
}

static int64_t take_sleb(struct cursor *c) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && !c->status; shift += 7) {
        uint64_t b = take_u(c, 1);
        if (shift < 64)
            v |= (b & 0x7f) << shift;
        if (!(b & 0x80)) {
            if ((b & 0x40) && shift + 7 < 64)
                v |= ~0ull << (shift + 7);
            return (int64_t)v;
        }
    }
    c->status = c->status ? c->status : -EBADMSG;
    return 0;
}

/* A pointer in one of the DW_EH_PE encodings. `data`: base of datarel. */
static uint64_t take_encoded(struct cursor *c, uint8_t enc, uint64_t data) {
    uint64_t here = c->at, v;
    switch (enc & 0x0f) {
    case 0x00: /* absptr */
    case 0x04: /* udata8 */
    case 0x0c: /* sdata8 */
        v = take_u(c, 8);
        break;
    case 0x01:
        v = take_uleb(c);
        break;
    case 0x02:
        v = take_u(c, 2);
        break;
    case 0x03:
        v = take_u(c, 4);
        break;
    case 0x09:
        v = (uint64_t)take_sleb(c);
        break;
    case 0x0a:
        v = (uint64_t)take_s(c, 2);
        break;
    case 0x0b:
        v = (uint64_t)take_s(c, 4);
        break;
    default:
        c->status = c->status ? c->status : -ENOTSUP;
        return 0;
    }
    switch (enc & 0x70) {
    case 0x00:
        break;
    case 0x10:
        v += here;
        break;
    case 0x30:
        v += data;
        break;
    default:
        c->status = c->status ? c->status : -ENOTSUP;
        return 0;
    }
    if (enc & 0x80) { /* indirect */
        uint64_t p = 0;
        if (!c->status)
            c->status = c->mem->read(c->mem->ctx, v, &p, sizeof p);
        v = p;
    }
    return v;
}

/* ---- finding the FDE: binary search in .eh_frame_hdr ---- */
static int find_fde(const struct cfi_memory *mem, uint64_t hdr, uint64_t pc, uint64_t *fde) {
    struct cursor c;
    cursor_set(&c, mem, hdr, hdr + 64);
    uint64_t version = take_u(&c, 1);
    uint8_t ptr_enc = (uint8_t)take_u(&c, 1), count_enc = (uint8_t)take_u(&c, 1);
    uint8_t table_enc = (uint8_t)take_u(&c, 1);
    if (c.status)
        return c.status;
    if (version != 1 || count_enc == 0xff ||
        table_enc != 0x3b) /* datarel sdata4, as all linkers write */
        return -ENOTSUP;
    take_encoded(&c, ptr_enc, hdr);
    uint64_t n = take_encoded(&c, count_enc, hdr), table = c.at;
    if (c.status)
        return c.status;
    if (n == 0 || n > (1u << 26))
        return -ENOENT;
    uint64_t lo = 0, hi = n; /* the last entry whose start is <= pc */
    int32_t entry[2];
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int rc = mem->read(mem->ctx, table + mid * 8, entry, sizeof entry);
        if (rc)
            return rc;
        if (hdr + (uint64_t)(int64_t)entry[0] <= pc)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return -ENOENT;
    int rc = mem->read(mem->ctx, table + (lo - 1) * 8, entry, sizeof entry);
    *fde = hdr + (uint64_t)(int64_t)entry[1];
    return rc;
}

/* ---- CIE and FDE ---- */
struct cie {
    uint64_t insns, insns_end;
    uint64_t code_align;
    int64_t data_align;
    uint8_t fde_enc;
    uint8_t signal, has_z;
};

/* Reads the length and the id field of an entry. Leaves the cursor after the id. */
static uint64_t open_entry(struct cursor *c, const struct cfi_memory *mem, uint64_t at,
                           uint64_t *id_at) {
    cursor_set(c, mem, at, at + 12);
    uint64_t len = take_u(c, 4);
    if (len == 0xffffffffu) {
        len = take_u(c, 8);
        c->end = c->at + 4;
    }
    if (!c->status && (len < 4 || len > (16u << 20)))
        c->status = -EBADMSG;
    c->end = c->at + len;
    *id_at = c->at;
    return take_u(c, 4);
}

static int read_cie(const struct cfi_memory *mem, uint64_t at, struct cie *cie) {
    struct cursor c;
    uint64_t id_at;
    uint64_t id = open_entry(&c, mem, at, &id_at);
    uint64_t version = take_u(&c, 1);
    char aug[8] = "";
    for (unsigned i = 0;; i++) {
        char ch = (char)take_u(&c, 1);
        if (!ch)
            break;
        if (i >= sizeof aug - 1)
            return -ENOTSUP;
        aug[i] = ch;
    }
    if (c.status)
        return c.status;
    if (id != 0 || (version != 1 && version != 3))
        return -ENOTSUP;
    memset(cie, 0, sizeof *cie);
    cie->code_align = take_uleb(&c);
    cie->data_align = take_sleb(&c);
    uint64_t ra = version == 1 ? take_u(&c, 1) : take_uleb(&c);
    if (!c.status && ra != CFI_RA)
        return -ENOTSUP;
    const char *a = aug;
    uint64_t after = 0;
    if (*a == 'z') {
        cie->has_z = 1;
        uint64_t n = take_uleb(&c);
        after = c.at + n;
        a++;
    }
    for (; *a; a++) {
        if (*a == 'R') {
            cie->fde_enc = (uint8_t)take_u(&c, 1);
        } else if (*a == 'P') {
            uint8_t enc = (uint8_t)take_u(&c, 1);
            take_encoded(&c, enc & 0x7f, 0); /* the personality itself is of no use here */
        } else if (*a == 'L') {
            take_u(&c, 1);
        } else if (*a == 'S') {
            cie->signal = 1;
        } else if (!cie->has_z) {
            return -ENOTSUP;
        } else {
            break; /* 'z' says how much to skip */
        }
    }
    cie->insns = after ? after : c.at;
    cie->insns_end = c.end;
    return c.status;
}

/* ---- executing the instructions ---- */
struct row {
    enum cfi_kind kind;
    unsigned reg;
    int64_t off;
    int32_t rbp, rbx;    /* offset from the CFA, or CFI_KEPT */
    int32_t rbp_reg_off; /* rbp saved at rbp + this (a realigned stack), or CFI_KEPT */
    uint8_t ra_end;      /* the return address is undefined */
    uint8_t ra_odd;      /* ... or lies elsewhere than at CFA - 8 */
};

/* CFA expressions that compilers and linkers really write: reg+n; *(reg+n); the PLT's
 * rsp+8 + ((rip & 15) >= k) * 8, which is a constant once pc is known. */
static void cfa_expression(struct cursor *c, uint64_t pc, struct row *row) {
    uint64_t len = take_uleb(c), start = c->at;
    uint8_t op = (uint8_t)take_u(c, 1);
    row->kind = CFI_NONE;
    if (op >= 0x70 && op <= 0x8f) {
        unsigned reg = op - 0x70u;
        int64_t off = take_sleb(c);
        uint8_t e[12] = "";
        uint64_t rest = start + len - c->at;
        if (!c->status && rest <= sizeof e) {
            take(c, e, rest);
            row->reg = reg;
            row->off = off;
            if (rest == 0)
                row->kind = CFI_OFFSET;
            else if (rest == 1 && e[0] == 0x06)
                row->kind = CFI_DEREF;
            else if (rest == 9 && e[0] == 0x80 && e[1] == 0 && e[2] == 0x3f && e[3] == 0x1a &&
                     e[4] >= 0x30 && e[4] <= 0x4f && e[5] == 0x2a && e[6] == 0x33 && e[7] == 0x24 &&
                     e[8] == 0x22) {
                row->kind = CFI_OFFSET;
                row->off += (pc & 15) >= (unsigned)(e[4] - 0x30) ? 8 : 0;
            }
        }
    }
    c->at = start + len;
}

static void set_saved(struct row *row, uint64_t reg, int64_t off) {
    if (off < -(1 << 30) || off > (1 << 30))
        off = 0; /* absurd: leads to a value that is checked like any other */
    if (reg == CFI_RBP) {
        row->rbp = (int32_t)off;
        row->rbp_reg_off = CFI_KEPT;
    } else if (reg == CFI_RBX) {
        row->rbx = (int32_t)off;
    } else if (reg == CFI_RA) {
        row->ra_odd = off != -8;
        row->ra_end = 0;
    }
}

static void set_kept(struct row *row, uint64_t reg) {
    if (reg == CFI_RBP)
        row->rbp = row->rbp_reg_off = CFI_KEPT;
    else if (reg == CFI_RBX)
        row->rbx = CFI_KEPT;
}

static void restore(struct row *row, const struct row *first, uint64_t reg) {
    if (reg == CFI_RBP) {
        row->rbp = first->rbp;
        row->rbp_reg_off = first->rbp_reg_off;
    } else if (reg == CFI_RBX) {
        row->rbx = first->rbx;
    } else if (reg == CFI_RA) {
        row->ra_end = first->ra_end;
        row->ra_odd = first->ra_odd;
    }
}

#define STATES 8
/* Runs instructions until the row that covers pc. `first`: the CIE's row, NULL while that is made. */
static int execute(struct cursor *c, const struct cie *cie, uint64_t loc, uint64_t pc,
                   struct row *row, const struct row *first) {
    struct row stack[STATES];
    unsigned depth = 0;
    while (!c->status && c->at < c->end) {
        uint8_t op = (uint8_t)take_u(c, 1);
        uint64_t reg, advance = 0;
        switch (op >> 6) {
        case 1:
            advance = (op & 0x3f) * cie->code_align;
            break;
        case 2:
            set_saved(row, op & 0x3f, (int64_t)take_uleb(c) * cie->data_align);
            continue;
        case 3:
            if (first)
                restore(row, first, op & 0x3f);
            continue;
        default:
            break;
        }
        if (!advance && !(op >> 6))
            switch (op) {
            case 0x00: /* nop */
                break;
            case 0x01: /* set_loc */
                loc = take_encoded(c, cie->fde_enc, 0);
                if (loc > pc)
                    return c->status;
                break;
            case 0x02:
                advance = take_u(c, 1) * cie->code_align;
                break;
            case 0x03:
                advance = take_u(c, 2) * cie->code_align;
                break;
            case 0x04:
                advance = take_u(c, 4) * cie->code_align;
                break;
            case 0x05: /* offset_extended */
                reg = take_uleb(c);
                set_saved(row, reg, (int64_t)take_uleb(c) * cie->data_align);
                break;
            case 0x11: /* offset_extended_sf */
                reg = take_uleb(c);
                set_saved(row, reg, take_sleb(c) * cie->data_align);
                break;
            case 0x06: /* restore_extended */
                reg = take_uleb(c);
                if (first)
                    restore(row, first, reg);
                break;
            case 0x07: /* undefined */
                reg = take_uleb(c);
                if (reg == CFI_RA)
                    row->ra_end = 1;
                break;
            case 0x08: /* same_value */
                set_kept(row, take_uleb(c));
                break;
            case 0x09: /* register: in another register; of no use when that one is not tracked */
                reg = take_uleb(c);
                take_uleb(c);
                if (reg == CFI_RA)
                    row->ra_odd = 1;
                break;
            case 0x0a: /* remember_state */
                if (depth == STATES)
                    return -ENOTSUP;
                stack[depth++] = *row;
                break;
            case 0x0b: /* restore_state */
                if (depth == 0)
                    return -EBADMSG;
                *row = stack[--depth];
                break;
            case 0x0c: /* def_cfa */
                row->kind = CFI_OFFSET;
                row->reg = (unsigned)take_uleb(c);
                row->off = (int64_t)take_uleb(c);
                break;
            case 0x12: /* def_cfa_sf */
                row->kind = CFI_OFFSET;
                row->reg = (unsigned)take_uleb(c);
                row->off = take_sleb(c) * cie->data_align;
                break;
            case 0x0d: /* def_cfa_register */
                row->kind = CFI_OFFSET;
                row->reg = (unsigned)take_uleb(c);
                break;
            case 0x0e: /* def_cfa_offset */
                row->off = (int64_t)take_uleb(c);
                break;
            case 0x13: /* def_cfa_offset_sf */
                row->off = take_sleb(c) * cie->data_align;
                break;
            case 0x0f: /* def_cfa_expression */
                cfa_expression(c, pc, row);
                break;
            case 0x10:   /* expression */
            case 0x16: { /* val_expression */
                reg = take_uleb(c);
                uint64_t len = take_uleb(c), start = c->at;
                uint8_t e = (uint8_t)take_u(c, 1);
                if (op == 0x10 && reg == CFI_RBP && e == 0x70 + CFI_RBP) { /* saved at rbp + n */
                    row->rbp = CFI_KEPT;
                    row->rbp_reg_off = (int32_t)take_sleb(c);
                } else if (reg == CFI_RA) {
                    row->ra_odd = 1;
                }
                c->at = start + len;
                break;
            }
            case 0x14: /* val_offset */
            case 0x15: /* val_offset_sf */
                take_uleb(c);
                take_uleb(c);
                break;
            case 0x2e: /* GNU_args_size */
                take_uleb(c);
                break;
            default:
                return -ENOTSUP;
            }
        if (advance) {
            loc += advance;
            if (loc > pc)
                return c->status;
        }
    }
    return c->status;
}

static int rule_of_row(const struct row *row, const struct cie *cie, struct cfi_rule *rule) {
    memset(rule, 0, sizeof *rule);
    if (cie->signal) {
        rule->kind = CFI_SIGNAL;
        rule->reg = CFI_RSP;
        rule->rbp_off = rule->rbx_off = CFI_KEPT;
        return 0;
    }
    if (row->ra_end) {
        rule->kind = CFI_END;
        rule->rbp_off = rule->rbx_off = CFI_KEPT;
        return 0;
    }
    if (row->kind == CFI_NONE || row->ra_odd || row->off < -(1 << 30) || row->off > (1 << 30))
        return -ENOTSUP;
    if (row->reg != CFI_RSP && row->reg != CFI_RBP && row->reg != CFI_RBX && row->reg != CFI_R10)
        return -ENOTSUP;
    rule->kind = row->kind;
    rule->reg = row->reg;
    rule->cfa_off = (int32_t)row->off;
    rule->rbp_off = row->rbp;
    rule->rbx_off = row->rbx;
    if (row->kind == CFI_DEREF)
        rule->rbp_off = row->reg == CFI_RBP ? row->rbp_reg_off : CFI_KEPT;
    return 0;
}

int cfi_find(const struct cfi_memory *mem, uint64_t hdr, uint64_t pc, struct cfi_rule *rule) {
    uint64_t fde, id_at;
    struct cursor c;
    struct cie cie;
    int rc = find_fde(mem, hdr, pc, &fde);
    if (rc)
        return rc;
    uint64_t back = open_entry(&c, mem, fde, &id_at);
    if (c.status)
        return c.status;
    if (back == 0)
        return -EBADMSG;
    rc = read_cie(mem, id_at - back, &cie);
    if (rc)
        return rc;
    uint64_t start = take_encoded(&c, cie.fde_enc, 0);
    uint64_t len = take_encoded(&c, cie.fde_enc & 0x0f, 0);
    if (c.status)
        return c.status;
    if (pc < start || pc - start >= len)
        return -ENOENT;
    if (cie.has_z) {
        uint64_t n = take_uleb(&c);
        c.at += n;
    }
    struct row row = {.kind = CFI_NONE, .rbp = CFI_KEPT, .rbx = CFI_KEPT, .rbp_reg_off = CFI_KEPT};
    struct cursor init;
    cursor_set(&init, mem, cie.insns, cie.insns_end);
    rc = execute(&init, &cie, 0, UINT64_MAX, &row, NULL);
    if (rc)
        return rc;
    struct row first = row;
    rc = execute(&c, &cie, start, pc, &row, &first);
    return rc ? rc : rule_of_row(&row, &cie, rule);
}

/* ---- packing: kind 3 | reg 4 | cfa_off 21 | rbp words 17 | rbx words 17 ---- */
static int fits(int32_t v, unsigned bits) {
    return v >= -(1 << (bits - 1)) && v < (1 << (bits - 1));
}

/* Offsets of saved registers are multiples of 8; the lowest value stands for CFI_KEPT. */
static int pack_saved(int32_t off, uint64_t *out) {
    int32_t words = off == CFI_KEPT ? -(1 << 16) : off / 8;
    if (off != CFI_KEPT && (off % 8 || !fits(words, 17) || words == -(1 << 16)))
        return -1;
    *out = (uint64_t)words & 0x1ffff;
    return 0;
}

uint64_t cfi_pack(const struct cfi_rule *r) {
    uint64_t rbp, rbx;
    if (r->kind == CFI_NONE || !fits(r->cfa_off, 21) || pack_saved(r->rbp_off, &rbp) ||
        pack_saved(r->rbx_off, &rbx))
        return 0;
    return (uint64_t)r->kind | (uint64_t)r->reg << 3 | ((uint64_t)r->cfa_off & 0x1fffff) << 7 |
           rbp << 28 | rbx << 45;
}

static int32_t sign_extend(uint64_t v, unsigned bits) {
    return (int32_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}

void cfi_unpack(uint64_t w, struct cfi_rule *r) {
    r->kind = w & 7;
    r->reg = w >> 3 & 15;
    r->cfa_off = sign_extend(w >> 7, 21);
    int32_t rbp = sign_extend(w >> 28, 17), rbx = sign_extend(w >> 45, 17);
    r->rbp_off = rbp == -(1 << 16) ? CFI_KEPT : rbp * 8;
    r->rbx_off = rbx == -(1 << 16) ? CFI_KEPT : rbx * 8;
}
