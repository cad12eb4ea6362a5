/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native_names.h - names the code at addresses in libdwfl's modules: function, file and, where there is DWARF, source lines and
 * inlined functions (inlined.h).
 *
 *     struct native_names *names = native_names_new(dwfl);       // the modules may be reported later
 *     struct native_name name;
 *     native_names_at(names, pc - 1, &name);
 *     const struct inlined_frame *v;
 *     size_t n = native_names_functions(names, pc - 1, &v);
 *     native_names_free(names);                                  // before dwfl_end()
 *
 * A module's symbols are read for the first address in it, and its DWARF for the first address whose functions are asked for: a
 * process may have hundreds of modules. Needs libdw, so the agent does not use it. One thread at a time.
 */
#ifndef PROBING_TRACES_NATIVE_NAMES_H
#define PROBING_TRACES_NATIVE_NAMES_H

#include "inlined.h"

struct native_names;
struct native_name {
    char symbol[1024]; /* "": unknown; without "@VERSION"; as in the file, C++ mangled */
    uint64_t offset;   /* from the symbol's start */
    char module[256];  /* base name of the file; "": anonymous memory */
    char path[512];
};

/* Returns NULL without memory. */
struct native_names *native_names_new(Dwfl *dwfl);
void native_names_free(struct native_names *t);
void native_names_at(struct native_names *t, uint64_t address, struct native_name *out);
/* Returns the functions at the address as inlined_frames() does; for CPython's eval loop, which Python frames replace, only its own line.
 * Returns 0 when no line is known or the code is the C library's. *out is valid until the next call. */
size_t native_names_functions(struct native_names *t, uint64_t address,
                              const struct inlined_frame **out);

#endif
