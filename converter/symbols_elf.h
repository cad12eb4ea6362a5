/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols_elf.h - the function symbols of an ELF file out of its own table, without libdw: to load that library and to ask it for all symbols of a
 * file takes ten times as long. Where they may lie elsewhere, but for a file of debug information with that build-id, or lines are wanted, libdw is asked.
 *
 *     struct symbols_elf e;
 *     err = symbols_elf_open(&e, path, build_id, len, has_lines);     // -errno: ask libdw, which may say that it is none
 *     ... e.syms, e.nsyms, e.names, e.starts: as libdw tells them ...
 *     symbols_elf_close(&e);
 */
#ifndef PROBING_CONVERTER_SYMBOLS_ELF_H
#define PROBING_CONVERTER_SYMBOLS_ELF_H

#include <elf.h>

#include "eh_table.h"
#include "symbols_kept.h"

struct symbols_elf {
    void *map, *stripped; /* the file, and what was stripped from it, where its symbols are there */
    size_t size, stripped_size;
    struct symbols_sym *syms; /* as in symbols_kept.h */
    size_t nsyms;
    const char *names; /* in the one or the other */
    uint64_t names_size;
    struct eh_table starts; /* in the file */
};

/* Whether a file of debug information that `debuglink` names (NULL: one called as the file is) may be where libdwfl looks. */
int symbols_elf_is_beside(const char *path, const char *debuglink);
/* has_lines: source lines are wanted, where there are any. 0 or -errno: -ENOTSUP where more than its own table is to be looked at, or it is not as usual. */
int symbols_elf_open(struct symbols_elf *e, const char *path, const uint8_t *build_id, size_t len,
                     int has_lines);
void symbols_elf_close(struct symbols_elf *e);
/* Of several symbols at one address that of the highest rank names it; 0: none, it is no function's. */
unsigned symbols_elf_rank(const Elf64_Sym *sym, uint32_t section, const char *name);

#endif
