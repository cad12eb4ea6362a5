/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up a function's jumps to other places in .eh_frame_hdr. Everything that is read may be torn or hostile. */
#include "image.h"

#include "mem.h"
#include "traces/proc.h"

#include <dwarf.h>
#include <sys/mman.h>

#define MAX_CODE (4u << 20)
#define MAX_FDES (1u << 20)
#define MAX_HITS 16

/* A row of the binary search table; both addresses are relative to the table's section. */
struct row {
    int32_t code, fde;
};

struct table {
    uint64_t base;   /* of .eh_frame_hdr */
    struct row *row; /* in pages of its own: many threads that come here have no heap yet */
    size_t bytes;
    uint32_t n;
};

/* Reads the table, with space for `more` bytes behind the rows. */
static int table_read(const struct pywalk_image *im, struct table *t, size_t more) {
    struct {
        uint8_t version, ptr, count, table;
        int32_t eh_frame;
        uint32_t n;
    } head;

    memset(t, 0, sizeof *t);
    t->base = im->eh_frame_hdr;
    if (t->base == 0)
        return -ENOENT;
    int rc = im->mem.read(im->mem.ctx, t->base, &head, sizeof head);
    /* pc-relative, unsigned and section-relative 4-byte numbers: what all linkers write */
    if (rc == 0 &&
        (head.version != 1 || head.ptr != (DW_EH_PE_pcrel | DW_EH_PE_sdata4) ||
         head.count != DW_EH_PE_udata4 || head.table != (DW_EH_PE_datarel | DW_EH_PE_sdata4) ||
         head.n == 0 || head.n > MAX_FDES))
        rc = -ENOENT;
    if (rc != 0)
        return rc;
    t->bytes = head.n * sizeof *t->row + more;
    t->row = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->row == MAP_FAILED)
        return -ENOMEM;
    t->n = head.n;
    rc = im->mem.read(im->mem.ctx, t->base + sizeof head, t->row, head.n * sizeof *t->row);
    if (rc != 0)
        munmap(t->row, t->bytes);
    return rc;
}

/* Whether this FDE describes code whose stack frame exists from its beginning on; if so, sets its range. */
static int is_fragment(const struct pywalk_image *im, const struct table *t, long row,
                       uint64_t *start, uint64_t *end) {
    uint64_t at = t->base + (uint64_t)(int64_t)t->row[row].fde;
    struct {
        uint32_t length, cie;
        int32_t code;
        uint32_t size;
        uint8_t data[8];
    } fde;
    size_t first; /* index of the first instruction, behind the augmentation data and its length */

    _Static_assert(sizeof fde == 24, "as in .eh_frame");
    if (im->mem.read(im->mem.ctx, at, &fde, sizeof fde) != 0 || fde.length < 20 ||
        fde.length >= 0xfffffff0u || fde.cie == 0)
        return 0;
    first = 1 + fde.data[0]; /* a LEB128 number: of one byte, or too large for `data` */
    *start = at + 8 + (uint64_t)(int64_t)fde.code;
    *end = *start + fde.size;
    if (*start != t->base + (uint64_t)(int64_t)t->row[row].code || first >= sizeof fde.data)
        return 0;
    /* The frame exists at once: the first instruction is neither an advance nor absent. */
    switch (fde.data[first]) {
    case DW_CFA_def_cfa:
    case DW_CFA_def_cfa_register:
    case DW_CFA_def_cfa_offset:
    case DW_CFA_def_cfa_expression:
    case DW_CFA_def_cfa_sf:
    case DW_CFA_def_cfa_offset_sf:
        return 1;
    default:
        return 0;
    }
}

int pywalk_cold_part(const struct pywalk_image *im, uint64_t start, uint64_t end,
                     uint64_t *cold_start, uint64_t *cold_end) {
    struct {
        long row;
        unsigned count;
    } hit[MAX_HITS] = {{0, 0}};
    size_t size = (size_t)(end - start), hits = 0, best;
    struct table t;

    if (end <= start || end - start > MAX_CODE)
        return -ENOENT;
    int rc = table_read(im, &t, size);
    if (rc != 0)
        return rc;
    uint8_t *code = (uint8_t *)(t.row + t.n);
    rc = im->mem.read(im->mem.ctx, start, code, size);
    /* jmp rel32 and jcc rel32, wherever such bytes are */
    for (size_t i = 0; rc == 0 && i + 6 <= size; i++) {
        size_t n = code[i] == 0xe9 ? 1 : code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80 ? 2 : 0;
        if (n == 0)
            continue;
        uint64_t to = start + i + n + 4 + (uint64_t)(int64_t)(int32_t)load32(code + i + n);
        if ((to >= start && to < end) || to < im->start || to >= im->end)
            continue;
        int64_t want = (int64_t)(to - t.base);
        long row = (long)ARRAY_BEFORE(k, t.n, t.row[k].code <= want) - 1;
        size_t k = 0;
        while (k < hits && hit[k].row != row)
            k++;
        if (row < 0 || k == MAX_HITS)
            continue;
        if (k == hits) {
            uint64_t from, past;
            if (!is_fragment(im, &t, row, &from, &past) || to < from || to >= past)
                continue;
            hit[hits++].row = row;
        }
        hit[k].count++;
    }
    /* Bytes that only look like a jump lead anywhere; the real jumps lead to one place. */
    best = 0;
    for (size_t k = 1; k < hits; k++)
        if (hit[k].count > hit[best].count)
            best = k;
    if (rc == 0 && (hits == 0 || !is_fragment(im, &t, hit[best].row, cold_start, cold_end)))
        rc = -ENOENT;
    munmap(t.row, t.bytes);
    return rc;
}
