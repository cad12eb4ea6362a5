/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols_kept.h - caches the sorted function symbols of an ELF file in a file of ours: reading and sorting them takes longer than
 * everything else that a second of new recording requires, and each program would have to do it anew.
 *
 *     struct symbols_kept k;
 *     if (symbols_kept_open(&k, dir, path, build_id, len) == 0) ... k.syms[i], k.names + k.syms[i].name if that is < k.names_size ...
 *     else ... read them (once it is known that the file at the path has that build-id), then symbols_kept_write(dir, path, build_id, len, &k) ...
 *     symbols_kept_close(&k);
 *
 * The cache file is found by the ELF file's path, build-id, inode, size and times, and by those of the debug file beside it. It is written
 * under another name and then renamed, so that it is either complete or absent; only the user may be able to write to `dir`. Opening it
 * reads its head only: of libtorch's 70 MB of names a question looks at some hundred. Symbols from the file's own table (symbols_elf.h)
 * refer to the names in that file, and are cached only when there are at least SYMBOLS_KEPT_MANY of them.
 */
#ifndef PROBING_CONVERTER_SYMBOLS_KEPT_H
#define PROBING_CONVERTER_SYMBOLS_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "eh_table.h"

#define SYMBOLS_KEPT_MANY 1024 /* reading fewer is faster than making a cache file */

struct symbols_sym {
    uint64_t start;
    uint32_t size; /* as the file says, or up to the start of the next symbol */
    uint32_t name; /* offset in `names` */
};

struct symbols_kept {
    const struct symbols_sym *syms; /* ascending, one for each address */
    size_t nsyms;
    const char *names;
    uint64_t names_size; /* offsets of names must be below it; a name ends at a NUL */
    uint64_t
        names_at; /* not 0: the names lie there in the ELF file, and need not be stored; starts_at: the same for `starts` */
    uint64_t starts_at;
    struct eh_table starts; /* lies in the same place as the names */
    int has_lines; /* 1: the file has DWARF, which says which functions were inlined where */
    /* set by symbols_kept_open(); elf: the ELF file, when the names lie in it */
    void *map, *elf;
    void *made; /* set by symbols_kept_make() */
    size_t size, elf_size;
};

/* A symbol as libdwfl reports it. */
struct symbols_told {
    uint64_t start, size;
    const char *name;
    unsigned rank; /* of several at one address the one of the highest rank names it */
};

/* Makes the table from n symbols, which it sorts in place; without memory the table is empty. */
void symbols_kept_make(struct symbols_kept *k, struct symbols_told *v, size_t n);
/* Lets each symbol without a size end where the next one begins. */
void symbols_kept_end(struct symbols_sym *v, size_t n);
/* Returns 0, or -errno when there is no such file. */
int symbols_kept_open(struct symbols_kept *k, const char *dir, const char *path,
                      const uint8_t *build_id, size_t len);
/* When it cannot be written, it is just not there the next time. */
void symbols_kept_write(const char *dir, const char *path, const uint8_t *build_id, size_t len,
                        const struct symbols_kept *k);
void symbols_kept_close(struct symbols_kept *k);

#endif
