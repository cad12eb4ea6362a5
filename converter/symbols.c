/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols.h"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eh_table.h"
#include "keys.h"
#include "traces/plain_file.h"
#include "traces/symbol.h"

struct symbols {
    struct keys files; /* key: path, NUL, build-id */
    struct symbols_file **file;
    size_t cap;
    struct keys text; /* names made here */
    char *debug_path; /* for libdwfl: where separate debug files may lie */
    Dwfl_Callbacks callbacks;
};

struct sym {
    uint64_t start, end; /* end: from the size, or the next symbol's start */
    const char *name;    /* in the ELF file's string table */
    uint8_t rank;        /* of several at one address the higher one names it */
};

struct symbols_file {
    struct symbols *owner;
    const char *path;
    const uint8_t *build_id;
    size_t len;
    int opened, found;
    Dwfl *dwfl;
    Dwfl_Module *mod;
    struct sym *syms;
    size_t nsyms;
    struct eh_table eh; /* where nameless functions begin */
    struct keys known;  /* address -> answers[id - 1] */
    struct symbol *answers;
    size_t answers_cap;
    struct symbol **inlined; /* what answers' `into` point at, an array for each */
    size_t ninlined, inlined_cap;
};

static const char *keep(struct symbols *s, const char *text) {
    uint32_t id = keys_put(&s->text, text, strlen(text) + 1, NULL);

    return id ? keys_key(&s->text, id, NULL) : NULL;
}

struct symbols *symbols_new(int debuginfod) {
    struct symbols *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    if (!debuginfod)
        unsetenv("DEBUGINFOD_URLS");
    keys_init(&s->files);
    keys_init(&s->text);
    s->callbacks.find_elf = dwfl_build_id_find_elf;
    s->callbacks.find_debuginfo = dwfl_standard_find_debuginfo;
    s->callbacks.debuginfo_path = &s->debug_path;
    return s;
}

void symbols_free(struct symbols *s) {
    if (!s)
        return;
    for (uint32_t i = 0; i < s->files.n; i++) {
        struct symbols_file *f = s->file[i];
        dwfl_end(f->dwfl);
        keys_free(&f->known);
        free(f->answers);
        for (size_t k = 0; k < f->ninlined; k++)
            free(f->inlined[k]);
        free(f->inlined);
        free(f->syms);
        eh_table_free(&f->eh);
        free(f);
    }
    free(s->file);
    keys_free(&s->files);
    keys_free(&s->text);
    free(s);
}

struct symbols_file *symbols_file(struct symbols *s, const char *path, const uint8_t *build_id,
                                  size_t len) {
    size_t n = strlen(path) + 1;
    char *key = malloc(n + len);
    int is_new;

    if (!key)
        return NULL;
    memcpy(key, path, n);
    if (len)
        memcpy(key + n, build_id, len);
    uint32_t id = keys_put(&s->files, key, n + len, &is_new);
    free(key);
    if (id == 0 || !is_new)
        return id ? s->file[id - 1] : NULL;
    struct symbols_file *f = calloc(1, sizeof *f);
    if (id > s->cap) {
        struct symbols_file **p =
            realloc(s->file, (s->cap * 2 + 64) * sizeof(struct symbols_file *));
        if (p) {
            s->file = p;
            s->cap = s->cap * 2 + 64;
        }
    }
    if (!f || id > s->cap) { /* the id is taken: without its file nothing here works any more */
        free(f);
        s->files.n--;
        return NULL;
    }
    f->owner = s;
    f->path = keys_key(&s->files, id, NULL);
    f->build_id = (const uint8_t *)f->path + n;
    f->len = len;
    keys_init(&f->known);
    s->file[id - 1] = f;
    return f;
}

static int by_start(const void *x, const void *y) {
    const struct sym *a = x, *b = y;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

/* All function symbols of the module, sorted, one an address. */
static void read_symbols(struct symbols_file *f) {
    int n = dwfl_module_getsymtab(f->mod);

    if (n <= 0 || !(f->syms = malloc((size_t)n * sizeof *f->syms)))
        return;
    for (int i = 0; i < n; i++) {
        GElf_Sym sym;
        GElf_Addr addr;
        GElf_Word shndx;
        const char *name = dwfl_module_getsym_info(f->mod, i, &sym, &addr, &shndx, NULL, NULL);
        int type = GELF_ST_TYPE(sym.st_info), bind = GELF_ST_BIND(sym.st_info);
        if (!name || !*name || shndx == SHN_UNDEF || shndx == SHN_ABS)
            continue;
        if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
            continue;
        /* a name without leading underscores and with a global binding is what people know */
        uint8_t rank = (uint8_t)(type == STT_NOTYPE ? 0
                                                    : 2 + 4 * (bind != STB_LOCAL) +
                                                          2 * (name[0] != '_') + (name[1] != '_'));
        f->syms[f->nsyms++] = (struct sym){addr, addr + sym.st_size, name, rank};
    }
    qsort(f->syms, f->nsyms, sizeof *f->syms, by_start);
    size_t k = 0;
    for (size_t i = 0; i < f->nsyms; i++)
        if (k == 0 || f->syms[i].start != f->syms[k - 1].start)
            f->syms[k++] = f->syms[i];
    f->nsyms = k;
    for (size_t i = 0; i < k; i++) /* hand-written assembly gives no size */
        if (f->syms[i].end == f->syms[i].start)
            f->syms[i].end = i + 1 < k ? f->syms[i + 1].start : f->syms[i].start + 4096;
}

static void open_file(struct symbols_file *f) {
    const void *id = NULL;
    GElf_Addr vaddr;
    Elf *elf = NULL;

    f->opened = 1;
    int fd = plain_file_open(f->path); /* [vdso] and the like are no names of files */
    if (fd < 0)
        return;
    elf_version(EV_CURRENT);
    elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (!elf || elf_kind(elf) != ELF_K_ELF)
        goto out;
    ssize_t n = dwelf_elf_gnu_build_id(elf, &id);
    if (n < 0)
        n = 0;
    if ((size_t)n != f->len || (n && memcmp(id, f->build_id, f->len) != 0))
        goto out;
    eh_table_read(&f->eh, elf);
    elf_end(elf);
    elf = NULL;
    f->dwfl = dwfl_begin(&f->owner->callbacks);
    if (!f->dwfl)
        goto out;
    dwfl_report_begin(f->dwfl);
    /* base 0, added to the file's own addresses: they are the ones that we are asked for */
    f->mod = dwfl_report_elf(f->dwfl, f->path, f->path, fd, 0, true);
    if (f->mod)
        fd = -1; /* libdwfl's now */
    dwfl_report_end(f->dwfl, NULL, NULL);
    if (f->mod && dwfl_module_getelf(f->mod, &vaddr)) {
        f->found = 1;
        read_symbols(f);
    }
out:
    if (elf)
        elf_end(elf);
    if (fd >= 0)
        close(fd);
}

int symbols_file_state(const struct symbols_file *f) {
    return f->opened ? f->found : -1;
}

static const struct sym *find(const struct symbols_file *f, uint64_t addr) {
    size_t lo = 0, hi = f->nsyms; /* the first symbol after addr */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (f->syms[mid].start > addr)
            hi = mid;
        else
            lo = mid + 1;
    }
    /* a small symbol may lie within a larger one that began before it */
    for (size_t k = 0; lo > 0 && k < 16; lo--, k++)
        if (addr < f->syms[lo - 1].end)
            return &f->syms[lo - 1];
    return NULL;
}

/* The name as people know it. */
static const char *readable(struct symbols *s, const char *name) {
    char *text = symbol_readable(name);
    const char *kept = text ? keep(s, text) : NULL;

    free(text);
    return kept ? kept : name;
}

/* An array of n symbols that lives as long as the file. */
static struct symbol *new_symbols(struct symbols_file *f, size_t n) {
    if (f->ninlined == f->inlined_cap) {
        size_t cap = f->inlined_cap * 2 + 64;
        struct symbol **p = realloc(f->inlined, cap * sizeof *p);
        if (!p)
            return NULL;
        f->inlined = p;
        f->inlined_cap = cap;
    }
    struct symbol *s = calloc(n, sizeof *s);
    if (s)
        f->inlined[f->ninlined++] = s;
    return s;
}

static const char *die_name(struct symbols *s, Dwarf_Die *die) {
    Dwarf_Attribute a;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &a));

    if (name)
        return readable(s, name);
    return dwarf_diename(die);
}

/* Where the function that this entry is inlined into calls it. */
static void call_place(Dwarf_Die *die, struct symbol *out) {
    Dwarf_Attribute a;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    Dwarf_Die cu;
    size_t n;

    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &a), &file) == 0 &&
        dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &a), &line) == 0 &&
        dwarf_diecu(die, &cu, NULL, NULL) && dwarf_getsrcfiles(&cu, &files, &n) == 0 && file < n) {
        out->source = dwarf_filesrc(files, file, NULL, NULL);
        out->line = out->source ? (uint32_t)line : 0;
    }
}

/*
 * Puts the functions that the compiler inlined at the address in front of the one in `out`. What DWARF
 * does not tell, or tells without a name, is left as it is.
 */
static void put_inlined(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    Dwarf_Die *at = NULL, *scopes = NULL, *cu;
    Dwarf_Addr bias;
    int n = 0, k = 0;

    cu = dwfl_module_addrdie(f->mod, addr, &bias);
    /* The second call gives what the innermost scope lies in, and not where its function was defined. */
    if (cu && dwarf_getscopes(cu, addr - bias, &at) > 0)
        n = dwarf_getscopes_die(&at[0], &scopes);
    for (int i = 0; i < n && dwarf_tag(&scopes[i]) != DW_TAG_subprogram; i++)
        k += dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine;
    struct symbol *all = k ? new_symbols(f, (size_t)k) : NULL, now = *out, *end = out;
    for (int i = 0; all && i < n && k; i++) {
        const char *name;
        if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine)
            continue;
        k--;
        if (!(name = die_name(f->owner, &scopes[i])))
            continue;
        *end = (struct symbol){.name = name, .source = now.source, .line = now.line, .into = all};
        call_place(&scopes[i], &now);
        end = all++;
    }
    *end = now;
    free(at);
    free(scopes);
}

static int answer(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    const struct sym *sym = NULL;

    memset(out, 0, sizeof *out);
    if (!f->opened)
        open_file(f);
    if (f->found)
        sym = find(f, addr);
    if (sym) {
        out->eval = symbol_is_eval(sym->name);
        out->name = readable(f->owner, sym->name);
        Dwfl_Line *line = dwfl_module_getsrc(f->mod, addr);
        int lineno = 0;
        const char *src = line ? dwfl_lineinfo(line, NULL, &lineno, NULL, NULL, NULL) : NULL;
        if (src && lineno > 0) {
            out->source = src;
            out->line = (uint32_t)lineno;
            if (!out->eval) /* Python frames take the place of that one */
                put_inlined(f, addr, out);
        }
        return 0;
    }
    char text[512];
    const char *base = strrchr(f->path, '/');
    snprintf(text, sizeof text, "%.400s+0x%llx", base ? base + 1 : f->path,
             (unsigned long long)eh_table_start(&f->eh, addr));
    const char *name = keep(f->owner, text);
    out->name = name ? name : "?";
    return name ? 0 : -ENOMEM;
}

int symbols_lookup(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    int is_new;
    uint32_t id = keys_put(&f->known, &addr, sizeof addr, &is_new);

    if (id == 0)
        return -ENOMEM;
    if (id > f->answers_cap) {
        size_t cap = f->answers_cap ? f->answers_cap * 2 : 256;
        struct symbol *p = realloc(f->answers, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        f->answers = p;
        f->answers_cap = cap;
    }
    if (is_new) {
        int err = answer(f, addr, &f->answers[id - 1]);
        if (err)
            return err;
    }
    *out = f->answers[id - 1];
    return 0;
}
