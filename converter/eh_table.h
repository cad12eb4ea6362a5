/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eh_table.h - finds where functions begin in files without symbols, by the search table in .eh_frame_hdr.
 *
 * A stripped library has no symbol names left, but the table for unwinding exceptions still has the start address of every function. With
 * it, all addresses of one nameless function are counted as one function.
 *
 *     struct eh_table t;
 *     eh_table_read(&t, elf);
 *     uint64_t start = eh_table_start(&t, addr);     // addr itself when no function contains it
 *     eh_table_free(&t);
 *
 * Addresses are the file's own (virtual addresses of the ELF file). The table is searched in place: one question needs few of its hundred
 * thousand functions. Hostile files do no harm: a table that is not sorted, as every linker sorts it, merely gives other names.
 */
#ifndef PROBING_CONVERTER_EH_TABLE_H
#define PROBING_CONVERTER_EH_TABLE_H

#include <libelf.h>
#include <stddef.h>
#include <stdint.h>

/* bytes of an entry: the function's start relative to `base`, then the place of its unwind information */
#define EH_TABLE_ENTRY 8
#define EH_TABLE_NAME  512 /* bytes of a name that eh_table_name() makes, at most */

struct eh_table {
    const uint8_t *entries; /* ascending */
    size_t n;
    uint64_t base;
};

/* Reads a copy of the table. Leaves an empty table when the file has none, or one in an encoding that no linker writes. */
void eh_table_read(struct eh_table *t, Elf *elf);
/* Does the same for the table at p, of `size` bytes and at virtual address `vaddr`, without copying it: p must outlive t, and there is
 * nothing to free. */
void eh_table_take(struct eh_table *t, const uint8_t *p, size_t size, uint64_t vaddr);
uint64_t eh_table_start(const struct eh_table *t, uint64_t addr);
/* Names a function without a symbol by its file and where it begins there, or by `addr` where that is not known: "libfoo.so+0x1230". */
void eh_table_name(const struct eh_table *t, uint64_t addr, const char *path,
                   char text[EH_TABLE_NAME]);
void eh_table_free(struct eh_table *t); /* frees a table of eh_table_read() */

#endif
