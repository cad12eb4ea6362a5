/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inlined.h - finds the source line of an address of native code and the inlined functions that contain it, by DWARF. Used by
 * the parts that show native frames: the converter and the backtraces.
 *
 *     struct inlined *t = inlined_new();
 *     struct inlined_frame *v;
 *     size_t n = inlined_frames(t, mod, addr, 1, &v);
 *     for (size_t i = 0; i < n; i++)
 *         printf("%s at %s:%u\n", v[i].name ? v[i].name : symbol, v[i].file, v[i].line);
 *     free(v);
 *     inlined_free(t);
 *
 * The module is libdwfl's; libdw reads its DWARF at the first look-up, and only the compilation unit that contains the address.
 * For a return address, pass the address before it, which belongs to the call. .dwo files (-gsplit-dwarf) are not read: with them
 * lines are found, inlined functions are not. One thread at a time. Needs libdw, so the agent does not use it.
 */
#ifndef PROBING_TRACES_INLINED_H
#define PROBING_TRACES_INLINED_H

#include <elfutils/libdwfl.h>
#include <stddef.h>
#include <stdint.h>

struct inlined; /* maps addresses to compilation units, for modules without a table of them */
struct inlined_frame {
    const char *
        name; /* of an inlined function, C++ mangled; NULL: the function of the symbol table, always the last */
    const char *
        file; /* source file, with `line`: of the address itself, then of each call; NULL: not known */
    uint32_t line; /* 0: not known */
};

/* Whether source lines of this file are worth a look-up. Not for the C library and its libm: their DWARF, where installed, is in separate
 * compressed files, and unpacking these takes longer than all else. Not for the agent's own files either. Nobody looks for lines of these. */
int inlined_is_worth(const char *path);

/* Finds the functions at the address, the innermost first; without `inlined` only the outermost one, at the innermost line. Returns their
 * number; 0 when no line is known or there is no memory. *out is malloc()ed, or NULL; its strings live as long as the module. */
size_t inlined_frames(struct inlined *t, Dwfl_Module *mod, Dwarf_Addr addr, int inlined,
                      struct inlined_frame **out);

/* Returns NULL without memory. Modules passed to inlined_frames() must stay loaded as long as it is called. */
struct inlined *inlined_new(void);
void inlined_free(struct inlined *t);

#endif
