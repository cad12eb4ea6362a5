/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols.h - names for addresses in ELF files, by libdw.
 *
 *     struct symbols *s = symbols_new(0);
 *     struct symbols_file *f = symbols_file(s, "/lib/libfoo.so", build_id, 20);
 *     struct symbol sym;
 *     symbols_lookup(f, pc - bias, &sym);      // sym.name: "foo", or "libfoo.so+0x1234"
 *     symbols_free(s);
 *
 * Where no symbol is known the offset is that of the function's beginning, as far as the file tells it (eh_table.h).
 *
 * A file is opened when its first address is looked up, and believed only when its build-id is the
 * one that the recorded process had mapped: after an upgrade, or on another machine, an address becomes
 * file name + offset rather than a wrong name. Symbols come from .symtab, .dynsym and separate
 * debug files on this machine (build-id and debuglink directories), which also stand in for a file that is gone;
 * source lines and inlined functions where DWARF says them (traces/inlined.h). The network (debuginfod) is asked only when told
 * to. Names are as people read them (traces/symbol.h).
 *
 * The symbols of a file are sorted once (symbols_kept.h: for good) and searched by bisection: libdwfl's own look-up walks all of them.
 * Everything returned lives until symbols_free(). One thread at a time, but for symbols_file(): any, while another looks up. symbols_new(0) removes
 * DEBUGINFOD_URLS from the environment.
 */
#ifndef PROBING_CONVERTER_SYMBOLS_H
#define PROBING_CONVERTER_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

struct symbols;
struct symbols_file;

struct symbol {
    const char *name;   /* never NULL */
    const char *source; /* source file, NULL if not known */
    uint32_t line;      /* 0 if not known */
    int named;          /* 0: no symbol is known, the name is file name + offset */
    int eval;           /* CPython's eval loop, a part that the compiler split off included */
    /* The function that this one was inlined into, at the line of the call; NULL: it is the one that the address lies in. */
    const struct symbol *into;
};

struct symbols *symbols_new(int debuginfod);
void symbols_free(struct symbols *s);
/* What is read of files is kept there for the next program (symbols_kept.h); the user's own, and nobody else's to write. Before the first question. */
void symbols_keep_in(struct symbols *s, const char *dir);
/* The file at this path with this build-id (len 0: has none; then it is believed). Equal ones are
 * one file. NULL: no memory. */
struct symbols_file *symbols_file(struct symbols *s, const char *path, const uint8_t *build_id,
                                  size_t len);
/* Names the address, as in the file (run-time address minus bias). 0 or -ENOMEM. */
int symbols_lookup(struct symbols_file *f, uint64_t addr, struct symbol *out);
/* 1: names come from this very file; 0: it is not here, or another one; -1: nobody asked yet. */
int symbols_file_state(const struct symbols_file *f);

/* Its build-id, *len bytes, and its path; the build-id lies behind the path's NUL. */
const uint8_t *symbols_file_id(const struct symbols_file *f, const char **path, size_t *len);

#endif
