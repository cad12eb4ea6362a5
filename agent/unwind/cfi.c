/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the entry of .eh_frame that covers a program counter, and packs rules into words. Sources: the DWARF 5 standard, section 6.4.1,
 * and the Linux Standard Base's description of .eh_frame and .eh_frame_hdr.
 */
#include "agent/unwind/cfi.h"

#include "agent/unwind/cfi_program.h"
#include "writer/sys.h"

/* ---- finding the FDE: binary search in .eh_frame_hdr ---- */
static int find_fde(const struct cfi_memory *mem, uint64_t hdr, uint64_t pc, uint64_t *fde) {
    struct cfi_cursor c;
    cfi_cursor_set(&c, mem, hdr, hdr + 64);
    uint64_t version = cfi_take_byte(&c);
    uint8_t ptr_enc = cfi_take_byte(&c), count_enc = cfi_take_byte(&c);
    uint8_t table_enc = cfi_take_byte(&c);
    if (c.status)
        return c.status;
    if (version != 1 || count_enc == 0xff || table_enc != 0x3b) /* datarel sdata4: all linkers' */
        return -ENOTSUP;
    cfi_take_encoded(&c, ptr_enc, hdr);
    uint64_t n = cfi_take_encoded(&c, count_enc, hdr), table = c.at;
    if (c.status)
        return c.status;
    if (n == 0 || n > (1u << 26))
        return -ENOENT;
    int32_t entry[2];
    int rc = 0; /* result of the first read that fails */
    uint64_t behind =
        ARRAY_BEFORE(i, n,
                     !rc && !(rc = mem->read(mem->ctx, table + i * 8, entry, sizeof entry)) &&
                         hdr + (uint64_t)(int64_t)entry[0] <= pc);
    if (rc || behind == 0)
        return rc ? rc : -ENOENT;
    rc = mem->read(mem->ctx, table + (behind - 1) * 8, entry, sizeof entry);
    *fde = hdr + (uint64_t)(int64_t)entry[1];
    return rc;
}

/* ---- CIE and FDE ---- */

/* Reads the length and the id field of an entry. Leaves the cursor after the id. */
static uint64_t open_entry(struct cfi_cursor *c, const struct cfi_memory *mem, uint64_t at,
                           uint64_t *id_at) {
    cfi_cursor_set(c, mem, at, at + 12);
    uint64_t len = cfi_take_u(c, 4);
    if (len == 0xffffffffu) {
        len = cfi_take_u(c, 8);
        c->end = c->at + 4;
    }
    if (!c->status && (len < 4 || len > (16u << 20)))
        c->status = -EBADMSG;
    c->end = c->at + len;
    *id_at = c->at;
    return cfi_take_u(c, 4);
}

static int read_cie(const struct cfi_memory *mem, uint64_t at, struct cfi_cie *cie) {
    struct cfi_cursor c;
    uint64_t id_at;
    uint64_t id = open_entry(&c, mem, at, &id_at);
    uint64_t version = cfi_take_byte(&c);
    char aug[8] = "", next;
    for (unsigned i = 0; (next = (char)cfi_take_byte(&c)); aug[i++] = next)
        if (i == sizeof aug - 1)
            return -ENOTSUP;
    if (c.status)
        return c.status;
    if (id != 0 || (version != 1 && version != 3))
        return -ENOTSUP;
    memset(cie, 0, sizeof *cie);
    cie->code_align = cfi_take_uleb(&c);
    cie->data_align = cfi_take_sleb(&c);
    uint64_t ra = version == 1 ? cfi_take_byte(&c) : cfi_take_uleb(&c);
    if (!c.status && ra != CFI_RA)
        return -ENOTSUP;
    const char *a = aug;
    uint64_t after = 0;
    if (*a == 'z') {
        cie->has_z = 1;
        uint64_t n = cfi_take_uleb(&c);
        after = c.at + n;
        a++;
    }
    for (; *a; a++) {
        if (*a == 'R') {
            cie->fde_enc = cfi_take_byte(&c);
        } else if (*a == 'P') {
            uint8_t enc = cfi_take_byte(&c);
            cfi_take_encoded(&c, enc & 0x7f, 0); /* the personality itself is of no use here */
        } else if (*a == 'L') {
            cfi_take_byte(&c);
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

int cfi_find(const struct cfi_memory *mem, uint64_t hdr, uint64_t pc, struct cfi_rule *rule,
             struct cfi_span *span) {
    uint64_t fde, id_at;
    struct cfi_cursor c;
    struct cfi_cie cie;
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
    uint64_t start = cfi_take_encoded(&c, cie.fde_enc, 0);
    uint64_t len = cfi_take_encoded(&c, cie.fde_enc & 0x0f, 0);
    if (c.status)
        return c.status;
    if (pc < start || pc - start >= len)
        return -ENOENT;
    if (cie.has_z) {
        uint64_t n = cfi_take_uleb(&c);
        c.at += n;
    }
    *span = (struct cfi_span){start, start + len};
    return cfi_program_rule(&cie, &c, pc, rule, span);
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

void cfi_unpack(uint64_t w, struct cfi_rule *r) {
    r->kind = w & 7;
    r->reg = w >> 3 & 15;
    r->cfa_off = (int32_t)cfi_extend(w >> 7, 21);
    int32_t rbp = (int32_t)cfi_extend(w >> 28, 17), rbx = (int32_t)cfi_extend(w >> 45, 17);
    r->rbp_off = rbp == -(1 << 16) ? CFI_KEPT : rbp * 8;
    r->rbx_off = rbx == -(1 << 16) ? CFI_KEPT : rbx * 8;
}
