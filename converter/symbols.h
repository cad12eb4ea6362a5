/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols.h - names for addresses in ELF files, by means of libdw.
 *
 *     struct symbols *s = symbols_new(0);
 *     struct symbols_file *f = symbols_file(s, "/lib/libfoo.so", build_id, 20);
 *     struct symbol sym;
 *     symbols_lookup(f, pc - bias, &sym);      // sym.name: "foo", or "libfoo.so+0x1234"
 *     symbols_free(s);
 *
 * Where no symbol is known, the name has the offset of the function's beginning, as far as the file tells where that is (eh_table.h).
 *
 * A file is opened when its first address is looked up, and used only when its build-id is the one that the recorded process had mapped:
 * after an upgrade, or on another machine, an address becomes file name + offset rather than a wrong name. (A file without a build-id is used
 * when it is known not to have changed since: modules.c.) Symbols come from .symtab,
 * .dynsym and separate debug files on this machine (build-id and debuglink directories), which also replace a file that is gone; source
 * lines and inlined functions come from DWARF (traces/inlined.h). The network (debuginfod) is used only on request. Names are demangled for
 * people (traces/symbol.h).
 *
 * The symbols of a file are sorted once (and cached by symbols_kept.h) and found by bisection, because libdwfl's own look-up walks all of
 * them. Everything returned lives until symbols_free(). One thread at a time, except that any thread may call symbols_file() while another
 * one looks up. symbols_new(0) removes DEBUGINFOD_URLS from the environment.
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
    int named;          /* 0: no symbol is known, and the name is file name + offset */
    int eval;           /* it is CPython's eval loop, or a part of it that the compiler split off */
    /* The function that this one was inlined into, at the line of the call; NULL: this is the function that contains the address. */
    const struct symbol *into;
};

struct symbols *symbols_new(int debuginfod);
void symbols_free(struct symbols *s);
/* Call before the first look-up: caches what is read from files in `dir`, for later programs (symbols_kept.h). Only the user may be able to
 * write there. */
void symbols_keep_in(struct symbols *s, const char *dir);
/* Returns the file at this path with this build-id. (len 0: the recorded file has none, and the file at the path is trusted.) The same path
 * and build-id give the same file. NULL: no memory. */
struct symbols_file *symbols_file(struct symbols *s, const char *path, const uint8_t *build_id,
                                  size_t len);
/* Names an address of the file (run-time address minus bias). Returns 0 or -ENOMEM. */
int symbols_lookup(struct symbols_file *f, uint64_t addr, struct symbol *out);
/* Returns 1: names come from this very file; 0: it is not here, or is a different file; -1: nothing was looked up yet. */
int symbols_file_state(const struct symbols_file *f);

/* Returns its build-id, of *len bytes, and its path; the build-id lies behind the path's NUL. */
const uint8_t *symbols_file_id(const struct symbols_file *f, const char **path, size_t *len);

#endif
