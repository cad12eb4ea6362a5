/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eh_table.h - where functions begin, for files without symbols: the search table of .eh_frame_hdr.
 *
 * A stripped library has no names left, but the table that its exceptions are unwound with has the
 * first address of every function. With it, all addresses of one nameless function are one function.
 *
 *     struct eh_table t;
 *     eh_table_read(&t, elf);
 *     uint64_t start = eh_table_start(&t, addr);     // addr itself when it is in no function
 *     eh_table_free(&t);
 *
 * Addresses are the file's own (virtual addresses of the ELF file). The table is searched as it lies there: a question asks for
 * few of its hundred thousand functions. Hostile files are harmless: one that is not sorted, as each linker does it, has other names.
 */
#ifndef PROBING_CONVERTER_EH_TABLE_H
#define PROBING_CONVERTER_EH_TABLE_H

#include <libelf.h>
#include <stddef.h>
#include <stdint.h>

#define EH_TABLE_ENTRY 8 /* bytes: a function's start from `base` on, then where its unwinding is */

struct eh_table {
    const uint8_t *entries; /* ascending */
    size_t n;
    uint64_t base;
};

/* A copy. Leaves an empty table when the file has none, or one in an encoding that no linker writes. */
void eh_table_read(struct eh_table *t, Elf *elf);
/* The same of a table that was found: its size, its virtual address. No copy: p must outlive it, and there is nothing to free. */
void eh_table_take(struct eh_table *t, const uint8_t *p, size_t size, uint64_t vaddr);
uint64_t eh_table_start(const struct eh_table *t, uint64_t addr);
void eh_table_free(struct eh_table *t); /* one of eh_table_read() */

#endif
