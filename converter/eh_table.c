/* SPDX-License-Identifier: Apache-2.0 */
#include "eh_table.h"

#include <gelf.h>
#include <stdlib.h>
#include <string.h>

/* Expected header: version 1, then the encodings of the pointer to .eh_frame, of the count and of the table. */
#define PCREL_SDATA4   0x1b
#define UDATA4         0x03
#define DATAREL_SDATA4 0x3b

/* Finds the bytes and the address of the header by the program headers, because section headers may be stripped too. */
static const uint8_t *find_header(Elf *elf, size_t *size, uint64_t *vaddr) {
    size_t nph = 0, len = 0;
    const char *file = elf_rawfile(elf, &len);
    GElf_Phdr ph;

    if (!file || elf_getphdrnum(elf, &nph) != 0)
        return NULL;
    for (size_t i = 0; i < nph; i++) {
        if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_GNU_EH_FRAME)
            continue;
        if (ph.p_offset > len || ph.p_filesz > len - ph.p_offset)
            return NULL;
        *size = ph.p_filesz;
        *vaddr = ph.p_vaddr;
        return (const uint8_t *)file + ph.p_offset;
    }
    return NULL;
}

void eh_table_read(struct eh_table *t, Elf *elf) {
    uint64_t vaddr;
    size_t size;
    const uint8_t *p = find_header(elf, &size, &vaddr);

    memset(t, 0, sizeof *t);
    if (p)
        eh_table_take(t, p, size, vaddr);
    void *copy = t->n ? malloc(t->n * EH_TABLE_ENTRY) : NULL;
    if (copy)
        memcpy(copy, t->entries, t->n * EH_TABLE_ENTRY);
    else
        t->n = 0;
    t->entries = copy;
}

void eh_table_take(struct eh_table *t, const uint8_t *p, size_t size, uint64_t base) {
    uint32_t n;

    memset(t, 0, sizeof *t);
    if (size < 12 || p[0] != 1 || p[1] != PCREL_SDATA4 || p[2] != UDATA4 || p[3] != DATAREL_SDATA4)
        return;
    memcpy(&n, p + 8, 4);
    if (n <= (size - 12) / EH_TABLE_ENTRY)
        *t = (struct eh_table){p + 12, n, base};
}

static uint64_t start_of(const struct eh_table *t, size_t i) {
    int32_t from;

    memcpy(&from, t->entries + i * EH_TABLE_ENTRY, sizeof from);
    return t->base + (uint64_t)(int64_t)from;
}

uint64_t eh_table_start(const struct eh_table *t, uint64_t addr) {
    size_t lo = 0, hi = t->n; /* find the first start after addr */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (start_of(t, mid) > addr)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo > 0 ? start_of(t, lo - 1) : addr;
}

/* Not by snprintf(): a trace of a stripped program has thousands of these. */
void eh_table_name(const struct eh_table *t, uint64_t addr, const char *path,
                   char text[EH_TABLE_NAME]) {
    const char *base = strrchr(path, '/');
    uint64_t start = eh_table_start(t, addr);
    char *p = text + strnlen(base ? base + 1 : path, EH_TABLE_NAME - 32);
    int digits = start ? (67 - __builtin_clzll(start)) / 4 : 1;

    memcpy(text, base ? base + 1 : path, (size_t)(p - text));
    memcpy(p, "+0x", 3);
    p += 3;
    for (int i = digits; i-- > 0; start /= 16)
        p[i] = "0123456789abcdef"[start % 16];
    p[digits] = 0;
}

void eh_table_free(struct eh_table *t) {
    free((void *)(uintptr_t)t->entries);
    memset(t, 0, sizeof *t);
}
