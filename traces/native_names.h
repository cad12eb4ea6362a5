/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native_names.h - what is known of addresses in the modules that libdwfl has: function, file and, where there is DWARF, source
 * lines and inlined functions (inlined.h).
 *
 *     struct native_names *names = native_names_new(dwfl);       // the modules may be reported later
 *     struct native_name name;
 *     native_names_at(names, pc - 1, &name);
 *     const struct inlined_frame *v;
 *     size_t n = native_names_functions(names, pc - 1, &v);
 *     native_names_free(names);                                  // before dwfl_end()
 *
 * A module's symbols are read for the first address in it, its DWARF for the first whose functions are asked for: a process may
 * have hundreds of them. Needs libdw: not for the agent. One thread at a time.
 */
#ifndef PROBING_TRACES_NATIVE_NAMES_H
#define PROBING_TRACES_NATIVE_NAMES_H

#include "inlined.h"

struct native_names;
struct native_name {
    char symbol[1024]; /* "" = unknown; without "@VERSION"; as in the file, C++ mangled */
    uint64_t offset;   /* from the symbol's start */
    char module[256];  /* base name of the file, "" = anonymous memory */
    char path[512];
};

/* NULL: no memory. */
struct native_names *native_names_new(Dwfl *dwfl);
void native_names_free(struct native_names *t);
void native_names_at(struct native_names *t, uint64_t address, struct native_name *out);
/* The functions at the address, as inlined_frames() has them; of CPython's eval loop, whose place Python frames take, its own line alone.
 * 0: no line is known, or it is the C library's. *out is valid until the next call. */
size_t native_names_functions(struct native_names *t, uint64_t address,
                              const struct inlined_frame **out);

#endif
