/* SPDX-License-Identifier: Apache-2.0 */
#include "native_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbol.h"

/* Names found already, by address: libdw searches a symbol table linearly, and the threads of a
 * pool are all at the same addresses. */
#define NAMES 4096
struct known {
    uint64_t address;
    struct native_name name;
    int sought; /* the next two are valid */
    struct inlined_frame *functions;
    size_t nfunctions;
};

struct native_names {
    Dwfl *dwfl;
    struct inlined *inlined;
    struct known *known[NAMES];
};

struct native_names *native_names_new(Dwfl *dwfl) {
    struct native_names *t = calloc(1, sizeof *t);

    if (t && !(t->inlined = inlined_new())) {
        free(t);
        return NULL;
    }
    if (t)
        t->dwfl = dwfl;
    return t;
}

void native_names_free(struct native_names *t) {
    for (size_t i = 0; t && i < NAMES; i++) {
        if (t->known[i])
            free(t->known[i]->functions);
        free(t->known[i]);
    }
    if (t)
        inlined_free(t->inlined);
    free(t);
}

static void find(struct native_names *t, uint64_t address, struct native_name *out) {
    Dwfl_Module *mod = dwfl_addrmodule(t->dwfl, address);
    const char *file = NULL, *name, *base;
    GElf_Off offset = 0;
    GElf_Sym sym;

    *out = (struct native_name){0};
    if (!mod)
        return;
    name = dwfl_module_info(mod, NULL, NULL, NULL, NULL, NULL, &file, NULL);
    if (!file)
        file = name;
    if (file) {
        base = strrchr(file, '/');
        snprintf(out->module, sizeof out->module, "%s", base ? base + 1 : file);
        snprintf(out->path, sizeof out->path, "%s", file);
    }
    name = dwfl_module_addrinfo(mod, address, &offset, &sym, NULL, NULL, NULL);
    /* A symbol of known size that ends before the address is not the function we are in. */
    if (!name ||
        (sym.st_size ? offset >= sym.st_size : offset > 0 && GELF_ST_TYPE(sym.st_info) != STT_FUNC))
        return;
    snprintf(out->symbol, sizeof out->symbol, "%.*s", (int)strcspn(name, "@"), name);
    out->offset = offset;
}

/* Returns NULL without memory. */
static struct known *known_at(struct native_names *t, uint64_t address) {
    struct known **slot = &t->known[(address * 0x9e3779b97f4a7c15u) >> 52];

    if (!*slot && !(*slot = calloc(1, sizeof **slot)))
        return NULL;
    if ((*slot)->address != address) {
        free((*slot)->functions);
        **slot = (struct known){.address = address};
        find(t, address, &(*slot)->name);
    }
    return *slot;
}

void native_names_at(struct native_names *t, uint64_t address, struct native_name *out) {
    const struct known *k = known_at(t, address);

    if (k)
        *out = k->name;
    else
        find(t, address, out);
}

size_t native_names_functions(struct native_names *t, uint64_t address,
                              const struct inlined_frame **out) {
    struct known *k = known_at(t, address);
    Dwfl_Module *mod = k && !k->sought && inlined_is_worth(k->name.path)
                           ? dwfl_addrmodule(t->dwfl, address)
                           : NULL;

    if (mod)
        k->nfunctions = inlined_frames(t->inlined, mod, address, !symbol_is_eval(k->name.symbol),
                                       &k->functions);
    *out = k ? k->functions : NULL;
    if (k)
        k->sought = 1;
    return k ? k->nfunctions : 0;
}
