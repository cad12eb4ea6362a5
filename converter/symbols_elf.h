/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols_elf.h - reads the function symbols of an ELF file from its own symbol table, without libdw: loading that library and asking it
 * for all symbols of a file takes ten times as long. libdw is still asked where the symbols may lie elsewhere (except in a debug file found
 * by that build-id), and where source lines are wanted.
 *
 *     struct symbols_elf e;
 *     err = symbols_elf_open(&e, path, build_id, len, has_lines);     // -errno: ask libdw, which may find that it is no such file either
 *     ... e.syms, e.nsyms, e.names, e.starts: the same as from libdw ...
 *     symbols_elf_close(&e);
 */
#ifndef PROBING_CONVERTER_SYMBOLS_ELF_H
#define PROBING_CONVERTER_SYMBOLS_ELF_H

#include <elf.h>

#include "eh_table.h"
#include "symbols_kept.h"

struct symbols_elf {
    /* the file, and the debug file stripped from it when that has its symbols */
    void *map, *stripped;
    size_t size, stripped_size;
    struct symbols_sym *syms; /* as in symbols_kept.h */
    size_t nsyms;
    const char *names; /* in one of the two */
    uint64_t names_size;
    struct eh_table starts; /* in `map` */
};

/* Returns 1 when a debug file named by `debuglink` (NULL: named like the file itself) may exist where libdwfl looks for it. */
int symbols_elf_is_beside(const char *path, const char *debuglink);
/* has_lines: source lines are wanted, if there are any. Returns 0 or -errno; -ENOTSUP: more than the file's own table is needed, or the
 * file is unusual. */
int symbols_elf_open(struct symbols_elf *e, const char *path, const uint8_t *build_id, size_t len,
                     int has_lines);
void symbols_elf_close(struct symbols_elf *e);
/* Returns the rank of a symbol: of several symbols at one address the one of the highest rank names it. 0: it is no function's symbol. */
unsigned symbols_elf_rank(const Elf64_Sym *sym, uint32_t section, const char *name);

#endif
