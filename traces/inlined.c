/* SPDX-License-Identifier: Apache-2.0 */
#include "inlined.h"

#include <dwarf.h>
#include <stdlib.h>

static const char *name_of(Dwarf_Die *die) {
    Dwarf_Attribute a;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &a));

    return name ? name : dwarf_diename(die);
}

/* Where the function that this entry is inlined into calls it; what is not said stays as it is. */
static void call_place(Dwarf_Die *die, struct inlined_frame *out) {
    Dwarf_Attribute a;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    Dwarf_Die cu;
    size_t n;

    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &a), &file) == 0 &&
        dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &a), &line) == 0 &&
        dwarf_diecu(die, &cu, NULL, NULL) && dwarf_getsrcfiles(&cu, &files, &n) == 0 && file < n) {
        out->file = dwarf_filesrc(files, file, NULL, NULL);
        out->line = out->file ? (uint32_t)line : 0;
    }
}

/* The entries that the address lies in, the innermost first, and how many of them lie within one function. */
static int scopes_at(Dwfl_Module *mod, Dwarf_Addr addr, Dwarf_Die **scopes) {
    Dwarf_Die *at = NULL, *cu;
    Dwarf_Addr bias;
    int n = 0, k = 0;

    cu = dwfl_module_addrdie(mod, addr, &bias);
    /* The second call gives what the innermost scope lies in, and not where its function was defined. */
    if (cu && dwarf_getscopes(cu, addr - bias, &at) > 0)
        n = dwarf_getscopes_die(&at[0], scopes);
    free(at);
    while (k < n && dwarf_tag(&(*scopes)[k]) != DW_TAG_subprogram)
        k++;
    return k;
}

size_t inlined_frames(Dwfl_Module *mod, Dwarf_Addr addr, int inlined, struct inlined_frame **out) {
    struct inlined_frame now = {0}, *v;
    Dwfl_Line *line = dwfl_module_getsrc(mod, addr);
    Dwarf_Die *scopes = NULL;
    int lineno = 0, scoped;
    size_t n = 0;

    *out = NULL;
    now.file = line ? dwfl_lineinfo(line, NULL, &lineno, NULL, NULL, NULL) : NULL;
    if (!now.file || lineno <= 0)
        return 0;
    now.line = (uint32_t)lineno;
    scoped = inlined ? scopes_at(mod, addr, &scopes) : 0;
    v = *out = calloc((size_t)scoped + 1, sizeof *v);
    for (int i = 0; v && i < scoped; i++) {
        if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine || !(now.name = name_of(&scopes[i])))
            continue;
        v[n++] = now;
        call_place(&scopes[i], &now);
    }
    now.name = NULL;
    if (v)
        v[n++] = now;
    free(scopes);
    return n;
}
