/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inlined.h - where in the source an address of native code lies, and which inlined functions it is in, by DWARF. For those who
 * show native frames: the converter and the backtraces.
 *
 *     struct inlined *t = inlined_new();
 *     struct inlined_frame *v;
 *     size_t n = inlined_frames(t, mod, addr, 1, &v);
 *     for (size_t i = 0; i < n; i++)
 *         printf("%s at %s:%u\n", v[i].name ? v[i].name : symbol, v[i].file, v[i].line);
 *     free(v);
 *     inlined_free(t);
 *
 * The module is libdwfl's; libdw reads its DWARF at the first question, and of it the compilation unit that the address lies in.
 * Of a return address the one before it is asked for: the call's. What lies in .dwo files (-gsplit-dwarf) is not read: the lines are
 * there, inlined functions are not. One thread at a time. Needs libdw: not for the agent.
 */
#ifndef PROBING_TRACES_INLINED_H
#define PROBING_TRACES_INLINED_H

#include <elfutils/libdwfl.h>
#include <stddef.h>
#include <stdint.h>

struct inlined; /* which compilation unit an address is of, where a module has no table of that */
struct inlined_frame {
    const char *
        name; /* of an inlined function, C++ mangled; NULL: the function of the symbol table, always the last */
    const char *
        file; /* the line that it stands at: of the address itself, then of each call; NULL: not known */
    uint32_t line; /* 0: not known */
};

/* Whether to ask for a file's at all. Not those of the C library and its libm: their DWARF, where it is installed, is in files of its own,
 * compressed, and unpacking these takes longer than all else. Nor the agent's. Nobody looks for a line of theirs in it. */
int inlined_is_worth(const char *path);

/* The functions at the address, the innermost first; without `inlined` the last one alone, at the innermost's line. Returns how many,
 * 0: there is no line (or no memory). *out is malloc()ed, or NULL; its texts live as long as the module. */
size_t inlined_frames(struct inlined *t, Dwfl_Module *mod, Dwarf_Addr addr, int inlined,
                      struct inlined_frame **out);

/* NULL: no memory. The modules that were asked for must stay while there are questions. */
struct inlined *inlined_new(void);
void inlined_free(struct inlined *t);

#endif
