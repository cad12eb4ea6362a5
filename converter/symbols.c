/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols.h"

#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cut_short.h"
#include "dict.h"
#include "eh_table.h"
#include "keys.h"
#include "symbols_elf.h"
#include "symbols_kept.h"
#include "traces/inlined.h"
#include "traces/plain_file.h"
#include "traces/symbol.h"

struct symbols {
    pthread_mutex_t lock; /* protects files, file and cap */
    struct keys files;    /* key: path, NUL, build-id */
    struct symbols_file **file;
    size_t cap;
    struct keys text; /* names that were made here */
    int debuginfod;
    struct inlined *inlined;
    char *kept_in;    /* the folder for symbols_kept.h, NULL: none */
    char *debug_path; /* for libdwfl: where separate debug files may lie */
    Dwfl_Callbacks callbacks;
};

struct symbols_file {
    struct symbols *owner;
    const char *path;
    const uint8_t *build_id;
    size_t len;
    int opened, found;
    Dwfl *dwfl;
    Dwfl_Module *mod;
    struct symbols_elf elf;   /* when it tells everything, libdwfl is not used */
    struct symbols_sym *read; /* read by libdwfl */
    char *names;
    struct symbols_kept known; /* the symbols of elf or read, or those stored before */
    const char **readable;     /* their demangled names, as far as they were asked for */
    struct eh_table eh;        /* starts of nameless functions, for libdwfl */
    struct keys asked;         /* key: address; for answers[id - 1] */
    struct symbol *answers;
    size_t answers_cap;
    struct symbol **inlined; /* arrays that `into` of the answers points into */
    size_t ninlined, inlined_cap;
};

static const char *keep(struct symbols *s, const char *text) {
    uint32_t id = keys_put(&s->text, text, strlen(text) + 1, NULL);

    return id ? keys_key(&s->text, id, NULL) : NULL;
}

/* Like dwfl_standard_find_debuginfo(), which for anything it does not find loads libdebuginfod, and with it libcurl and some thirty other libraries. */
static int find_debuginfo(Dwfl_Module *mod, void **userdata, const char *modname, Dwarf_Addr base,
                          const char *file, const char *debuglink, GElf_Word crc, char **out) {
    int fd = dwfl_build_id_find_debuginfo(mod, userdata, modname, base, file, debuglink, crc, out);

    return fd >= 0 || !symbols_elf_is_beside(file, debuglink)
               ? fd
               : dwfl_standard_find_debuginfo(mod, userdata, modname, base, file, debuglink, crc,
                                              out);
}

struct symbols *symbols_new(int debuginfod) {
    struct symbols *s = calloc(1, sizeof *s);

    if (!s || !(s->inlined = inlined_new())) {
        free(s);
        return NULL;
    }
    s->debuginfod = debuginfod;
    if (!debuginfod)
        unsetenv("DEBUGINFOD_URLS");
    pthread_mutex_init(&s->lock, NULL);
    keys_init(&s->files);
    keys_init(&s->text);
    s->callbacks.find_elf = dwfl_build_id_find_elf;
    s->callbacks.find_debuginfo = debuginfod ? dwfl_standard_find_debuginfo : find_debuginfo;
    s->callbacks.debuginfo_path = &s->debug_path;
    return s;
}

void symbols_keep_in(struct symbols *s, const char *dir) {
    free(s->kept_in);
    s->kept_in = strdup(dir);
}

void symbols_free(struct symbols *s) {
    if (!s)
        return;
    for (uint32_t i = 0; i < s->files.n; i++) {
        struct symbols_file *f = s->file[i];
        if (f->dwfl) /* NULL would be allowed, but the library may not be there */
            dwfl_end(f->dwfl);
        keys_free(&f->asked);
        free(f->answers);
        for (size_t k = 0; k < f->ninlined; k++)
            free(f->inlined[k]);
        free(f->inlined);
        symbols_kept_close(&f->known);
        free(f->readable);
        symbols_elf_close(&f->elf);
        eh_table_free(&f->eh);
        free(f);
    }
    inlined_free(s->inlined);
    free(s->kept_in);
    free(s->file);
    keys_free(&s->files);
    keys_free(&s->text);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct symbols_file *file_of(struct symbols *s, const char *path, const uint8_t *build_id,
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
    if (!f || id > s->cap) { /* the id exists, but without its file nothing here would work */
        free(f);
        s->files.n--;
        return NULL;
    }
    f->owner = s;
    f->path = keys_key(&s->files, id, NULL);
    f->build_id = (const uint8_t *)f->path + n;
    f->len = len;
    keys_init(&f->asked);
    s->file[id - 1] = f;
    return f;
}

struct symbols_file *symbols_file(struct symbols *s, const char *path, const uint8_t *build_id,
                                  size_t len) {
    pthread_mutex_lock(&s->lock);
    struct symbols_file *f = file_of(s, path, build_id, len);
    pthread_mutex_unlock(&s->lock);
    return f;
}

/* Reads all function symbols of the module. */
static void read_symbols(struct symbols_file *f) {
    int n = dwfl_module_getsymtab(f->mod);
    struct symbols_told *v = n > 0 ? malloc((size_t)n * sizeof *v) : NULL;
    size_t count = 0;

    for (int i = 0; v && i < n; i++) {
        GElf_Sym sym;
        GElf_Addr addr;
        GElf_Word section;
        const char *name = dwfl_module_getsym_info(f->mod, i, &sym, &addr, &section, NULL, NULL);
        unsigned rank = name ? symbols_elf_rank(&sym, section, name) : 0;
        if (rank)
            v[count++] = (struct symbols_told){addr, sym.st_size, name, rank};
    }
    symbols_kept_make(&f->known, v, count);
    f->known.starts = f->eh;
    free(v);
}

static const char *name_of(const struct symbols_file *f, const struct symbols_sym *sym) {
    return f->known.names + sym->name;
}

/* Opens the ELF file at the path if it is the one that was mapped. Returns its descriptor, or -1. */
static int open_right(const struct symbols_file *f, const char *path, Elf **elf) {
    const void *id = NULL;
    int fd = plain_file_open(path); /* [vdso] and the like are not names of files */

    if (fd >= 0) /* only now: when there is no file, nobody needs libelf */
        elf_version(EV_CURRENT);
    *elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (*elf && elf_kind(*elf) == ELF_K_ELF) {
        ssize_t n = dwelf_elf_gnu_build_id(*elf, &id);
        if ((size_t)(n < 0 ? 0 : n) == f->len && (n <= 0 || memcmp(id, f->build_id, f->len) == 0))
            return fd;
    }
    if (*elf)
        elf_end(*elf);
    *elf = NULL;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Fetches the file, or its debug file, over the network; elfutils' client uses DEBUGINFOD_URLS. Returns a malloc'ed path, or NULL. */
static char *fetch(const struct symbols_file *f) {
    static const char *const what[] = {"debuginfod_find_executable", "debuginfod_find_debuginfo"};
    void *(*begin)(void);
    void (*end)(void *);
    int (*find_file)(void *, const unsigned char *, int, char **);
    void *lib = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL), *client = NULL, *p, *q;
    char *path = NULL;

    if (lib && (p = dlsym(lib, "debuginfod_begin")) && (q = dlsym(lib, "debuginfod_end"))) {
        memcpy(&begin, &p, sizeof p);
        memcpy(&end, &q, sizeof q);
        client = begin();
    }
    for (int i = 0; client && !path && i < 2; i++) {
        if (!(p = dlsym(lib, what[i])))
            continue;
        memcpy(&find_file, &p, sizeof p);
        int fd = find_file(client, f->build_id, (int)f->len, &path);
        if (fd >= 0)
            close(fd);
        else
            path = NULL;
    }
    if (client)
        end(client);
    return path;
}

/* For a file that is gone: opens, by its build-id, its debug file on this machine, or else one from the network if that was asked for. */
static int open_by_build_id(const struct symbols_file *f, Elf **elf, char **path) {
    char name[256] = "/usr/lib/debug/.build-id/";
    size_t n = strlen(name);

    *path = NULL;
    if (f->len < 8 || f->len > 64)
        return -1;
    for (size_t i = 0; i < f->len; i++)
        n += (size_t)snprintf(name + n, sizeof name - n, "%02x%s", f->build_id[i], i ? "" : "/");
    snprintf(name + n, sizeof name - n, ".debug");
    int fd = open_right(f, name, elf);
    if (fd >= 0)
        *path = strdup(name);
    else if (f->owner->debuginfod && (*path = fetch(f)))
        fd = open_right(f, *path, elf);
    return fd;
}

static void keep_symbols(const struct symbols_file *f) {
    if (f->owner->kept_in && !f->owner->debuginfod)
        symbols_kept_write(f->owner->kept_in, f->path, f->build_id, f->len, &f->known);
}

/* Opens the file with libdw; without `anew` only for its source lines, as its symbols are known. */
static void open_elf(struct symbols_file *f, int anew) {
    GElf_Addr vaddr;
    Elf *elf = NULL;
    char *other = NULL;

    int fd = open_right(f, f->path, &elf);
    if (fd < 0 && f->path[0] == '/')
        fd = open_by_build_id(f, &elf, &other);
    if (fd < 0)
        goto out;
    if (anew)
        eh_table_read(&f->eh, elf);
    elf_end(elf);
    elf = NULL;
    f->dwfl = dwfl_begin(&f->owner->callbacks);
    if (!f->dwfl)
        goto out;
    dwfl_report_begin(f->dwfl);
    /* with base 0 the addresses are the file's own, which are the ones we look up */
    f->mod = dwfl_report_elf(f->dwfl, f->path, other ? other : f->path, fd, 0, true);
    if (f->mod)
        fd = -1; /* libdwfl owns it now */
    dwfl_report_end(f->dwfl, NULL, NULL);
    if (f->mod && dwfl_module_getelf(f->mod, &vaddr) && anew) {
        f->found = 1;
        read_symbols(f);
        f->known.has_lines = inlined_is_worth(f->path) && dwfl_module_getdwarf(f->mod, &vaddr);
        if (!other)
            keep_symbols(f);
    }
out:
    if (elf)
        elf_end(elf);
    if (fd >= 0)
        close(fd);
    free(other);
}

static void open_file(struct symbols_file *f) {
    struct symbols_elf *e = &f->elf;

    f->opened = 1;
    f->found = f->owner->kept_in && !f->owner->debuginfod &&
               symbols_kept_open(&f->known, f->owner->kept_in, f->path, f->build_id, f->len) == 0;
    if (!f->found && !f->owner->debuginfod && f->path[0] == '/' &&
        symbols_elf_open(e, f->path, f->build_id, f->len, inlined_is_worth(f->path)) == 0) {
        f->found = 1;
        f->known = (struct symbols_kept){
            .syms = e->syms,
            .nsyms = e->nsyms,
            .names = e->names,
            .names_size = e->names_size,
            .names_at = e->stripped ? 0 : (uint64_t)(e->names - (const char *)e->map),
            .starts = e->starts};
        if (f->known.names_at && e->starts.n)
            f->known.starts_at = (uint64_t)(e->starts.entries - (const uint8_t *)e->map);
        if (e->nsyms >= SYMBOLS_KEPT_MANY)
            keep_symbols(f);
    } else if (!f->found)
        open_elf(f, 1);
    else if (f->known.has_lines)
        open_elf(f, 0);
}

int symbols_file_state(const struct symbols_file *f) {
    return f->opened ? f->found : -1;
}

const uint8_t *symbols_file_id(const struct symbols_file *f, const char **path, size_t *len) {
    *path = f->path;
    *len = f->len;
    return f->build_id;
}

static const struct symbols_sym *find(const struct symbols_kept *k, uint64_t addr) {
    size_t lo = 0, hi = k->nsyms; /* find the first symbol after addr */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (k->syms[mid].start > addr)
            hi = mid;
        else
            lo = mid + 1;
    }
    /* a small symbol may lie within a larger one that begins before it */
    for (int n = 0; lo > 0 && n < 16; lo--, n++)
        if (addr - k->syms[lo - 1].start < k->syms[lo - 1].size)
            return &k->syms[lo - 1];
    return NULL;
}

/* Returns the demangled name, not longer than the names that a trace returns (dict.h). */
static const char *readable(struct symbols *s, const char *name) {
    char *text = symbol_readable(name);

    if (strnlen(text ? text : name, DICT_STRING + 1) > DICT_STRING) {
        char *cut = strndup(text ? text : name, DICT_STRING);
        free(text);
        text = cut;
    }
    const char *kept = keep(s, text ? text : name); /* a copy, because the file may change */

    free(text);
    return kept ? kept : name;
}

/* Does the same for a symbol, which often has several addresses in a trace. */
static const char *readable_of(struct symbols_file *f, const struct symbols_sym *sym) {
    if (!f->readable)
        f->readable = calloc(f->known.nsyms, sizeof *f->readable);
    if (!f->readable)
        return readable(f->owner, name_of(f, sym));
    const char **at = &f->readable[sym - f->known.syms];
    if (!*at)
        *at = readable(f->owner, name_of(f, sym));
    return *at;
}

/* Returns an array of n symbols that lives as long as the file. */
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

static const char *source_of(struct symbols_file *f, const struct inlined_frame *v) {
    return v->file ? keep(f->owner, v->file) : NULL;
}

/* Adds the source line of the function, and in front of it the functions inlined at the address, as far as DWARF tells them. */
static void put_source(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    struct inlined_frame *v;
    /* Python frames replace the eval loop */
    size_t n = inlined_frames(f->owner->inlined, f->mod, addr, !out->eval, &v);
    struct symbol *all = n > 1 ? new_symbols(f, n - 1) : NULL, host = *out;

    for (size_t i = 0; all && i + 1 < n; i++, out = all++)
        *out = (struct symbol){.name = readable(f->owner, v[i].name),
                               .named = 1,
                               .source = source_of(f, &v[i]),
                               .line = v[i].line,
                               .into = all};
    if (n) {
        const struct inlined_frame *at = &v[all ? n - 1 : 0];
        host.source = source_of(f, at);
        host.line = at->line;
    }
    *out = host;
    free(v);
}

static int answer(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    const struct symbols_sym *sym = NULL;

    memset(out, 0, sizeof *out);
    if (!f->opened)
        open_file(f);
    if (f->found)
        sym = find(&f->known, addr);
    if (sym && (sym->name >= f->known.names_size || !*name_of(f, sym))) /* it is damaged */
        sym = NULL;
    if (sym) {
        out->named = 1;
        out->eval = symbol_is_eval(name_of(f, sym));
        out->name = readable_of(f, sym);
        if (f->known.has_lines && f->mod)
            put_source(f, addr, out);
        return 0;
    }
    char text[EH_TABLE_NAME];
    eh_table_name(&f->known.starts, addr, f->path, text);
    const char *name = keep(f->owner, text);
    out->name = name ? name : "?";
    return name ? 0 : -ENOMEM;
}

struct question {
    struct symbols_file *f;
    uint64_t addr;
    struct symbol answer;
    int err;
};

static void ask(void *arg) {
    struct question *q = arg;

    q->err = answer(q->f, q->addr, &q->answer);
}

int symbols_lookup(struct symbols_file *f, uint64_t addr, struct symbol *out) {
    struct question q = {.f = f, .addr = addr};
    int is_new;
    uint32_t id = keys_put(&f->asked, &addr, sizeof addr, &is_new);

    if (id == 0)
        return -ENOMEM;
    if (id > f->answers_cap) {
        size_t cap = f->answers_cap ? f->answers_cap * 2 : 8;
        struct symbol *p = realloc(f->answers, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        f->answers = p;
        f->answers_cap = cap;
    }
    if (is_new) {
        if (cut_short_try(ask, &q)) { /* libdwfl's data are not freed, as their state is unknown */
            symbols_kept_close(&f->known);
            f->found = 0;
            f->mod = NULL;
            f->dwfl = NULL;
            ask(&q);
        }
        if (q.err)
            return q.err;
        f->answers[id - 1] = q.answer;
    }
    *out = f->answers[id - 1];
    return 0;
}
