/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols_kept.h - the function symbols of an ELF file, sorted, in a file of ours: to read them from the ELF file and to sort them takes
 * longer than what a second of recording adds takes otherwise, and each program begins anew.
 *
 *     struct symbols_kept k;
 *     if (symbols_kept_open(&k, dir, path, build_id, len) == 0) ... k.syms[i], k.names + k.syms[i].name if that is < k.names_size ...
 *     else ... read them (now known to be right: the file at the path has that build-id), then symbols_kept_write(dir, path, build_id, len, &k) ...
 *     symbols_kept_close(&k);
 *
 * It is found by the ELF file's path, build-id, inode, size and times, and by those of the file of debug information beside it. It is written
 * under another name and renamed, so that it is whole or not there; `dir` is the user's own, and nobody else's to write. To open it reads
 * its head alone: of 70 MB of libtorch's names a question looks at some hundred. What is read from the file's own table (symbols_elf.h) has its names
 * there, and is kept where it is much: SYMBOLS_KEPT_MANY symbols.
 */
#ifndef PROBING_CONVERTER_SYMBOLS_KEPT_H
#define PROBING_CONVERTER_SYMBOLS_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "eh_table.h"

#define SYMBOLS_KEPT_MANY 4096 /* fewer are read anew faster than a file is made */

struct symbols_sym {
    uint64_t start;
    uint32_t size; /* as the file says it, or up to the next symbol's start */
    uint32_t name; /* from `names` on */
};

struct symbols_kept {
    const struct symbols_sym *syms; /* ascending, one an address */
    size_t nsyms;
    const char *names;
    uint64_t names_size; /* a name must begin before that, and ends at a NUL */
    uint64_t
        names_at; /* not 0: there they lie in the ELF file, and need not be kept; starts_at: those */
    uint64_t starts_at;
    struct eh_table starts; /* lies where the names do */
    int has_lines;          /* DWARF: what is inlined where is to be asked of the file */
    void *map, *elf;        /* of symbols_kept_open(); elf: the file, where names lie in it */
    void *made;             /* of symbols_kept_make() */
    size_t size, elf_size;
};

/* What libdwfl tells, as much as it is. */
struct symbols_told {
    uint64_t start, size;
    const char *name;
    unsigned rank; /* of several at one address that of the highest names it */
};

/* Of n of them, which it sorts; without memory none. */
void symbols_kept_make(struct symbols_kept *k, struct symbols_told *v, size_t n);
/* One without a size ends where the next begins. */
void symbols_kept_end(struct symbols_sym *v, size_t n);
/* 0 or -errno: there is none. */
int symbols_kept_open(struct symbols_kept *k, const char *dir, const char *path,
                      const uint8_t *build_id, size_t len);
/* Where it cannot be written it is not there the next time. */
void symbols_kept_write(const char *dir, const char *path, const uint8_t *build_id, size_t len,
                        const struct symbols_kept *k);
void symbols_kept_close(struct symbols_kept *k);

#endif
