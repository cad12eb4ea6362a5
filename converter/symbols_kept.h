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
 * its head alone: of 70 MB of libtorch's names a question looks at some hundred.
 */
#ifndef PROBING_CONVERTER_SYMBOLS_KEPT_H
#define PROBING_CONVERTER_SYMBOLS_KEPT_H

#include <stddef.h>
#include <stdint.h>

struct symbols_sym {
    uint64_t start, end; /* end: from the size, or the next symbol's start */
    uint64_t name;       /* from `names` on */
    uint64_t rank;       /* of several at one address the higher one names it */
};

struct symbols_kept {
    const struct symbols_sym *syms; /* ascending, one an address */
    size_t nsyms;
    const char *names;
    uint64_t
        names_size; /* of symbols_kept_open(): a name must begin before that, and ends at a NUL */
    const uint64_t *starts; /* eh_table.h */
    size_t nstarts;
    int has_lines; /* DWARF: what is inlined where is to be asked of the file */
    void *map;     /* of symbols_kept_open() */
    size_t size;
};

/* 0 or -errno: there is none. */
int symbols_kept_open(struct symbols_kept *k, const char *dir, const char *path,
                      const uint8_t *build_id, size_t len);
/* Where it cannot be written it is not there the next time. */
void symbols_kept_write(const char *dir, const char *path, const uint8_t *build_id, size_t len,
                        const struct symbols_kept *k);
void symbols_kept_close(struct symbols_kept *k);

#endif
