/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols_elf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../traces/plain_file.h"

#define DIGIT  11 /* bits of an address that one pass sorts by */
#define DIGITS 3

int symbols_elf_is_beside(const char *path, const char *debuglink) {
    static const char *const under[] = {"", "/usr/lib/debug"}, *const in[] = {"", ".debug/"};
    char real[PATH_MAX], name[3 * PATH_MAX];
    int found = 0;

    if (!path || !realpath(path, real))
        return 0;
    const char *base = strrchr(real, '/') + 1;
    for (int i = 0; !found && i < 4; i++) {
        snprintf(name, sizeof name, "%s%.*s%s%s%s", under[i / 2], (int)(base - real), real,
                 in[i % 2], debuglink ? debuglink : base, debuglink ? "" : ".debug");
        found = access(name, F_OK) == 0;
    }
    return found;
}

/* Makes the name that its debug file would have, and returns 1 when that exists. */
static int is_by_build_id(char name[256], const uint8_t *build_id, size_t len) {
    size_t n = (size_t)snprintf(name, 256, "/usr/lib/debug/.build-id/");

    for (size_t i = 0; i < len && i < 64; i++)
        n += (size_t)snprintf(name + n, 256 - n, "%02x%s", build_id[i], i ? "" : "/");
    snprintf(name + n, 256 - n, ".debug");
    return len > 0 && access(name, F_OK) == 0;
}

/* ---- the file ---- */

struct image {
    const uint8_t *bytes;
    size_t size;
    const Elf64_Shdr *symbols; /* NULL: there are none */
    const char *names, *debuglink;
    size_t nnames;
    int is_own; /* from .symtab, not .dynsym */
    int has_debug, has_packed;
};

/* Returns the n bytes at an offset, NULL when the file does not have them. */
static const void *at(const struct image *m, uint64_t offset, uint64_t n) {
    return offset <= m->size && n <= m->size - offset && offset % 4 == 0 ? m->bytes + offset : NULL;
}

/* Returns a section's bytes if they end with a NUL, else NULL. */
static const char *texts(const struct image *m, const Elf64_Shdr *s) {
    int is_inside = s->sh_type != SHT_NOBITS && s->sh_offset <= m->size &&
                    s->sh_size <= m->size - s->sh_offset && s->sh_size > 0;
    const char *p = is_inside ? (const char *)m->bytes + s->sh_offset : NULL;

    return p && !p[s->sh_size - 1] ? p : NULL;
}

static const Elf64_Ehdr *head_of(const struct image *m) {
    const Elf64_Ehdr *e = at(m, 0, sizeof *e);

    /* only machines whose symbol values are plain addresses */
    return e && memcmp(e->e_ident, ELFMAG, SELFMAG) == 0 && e->e_ident[EI_CLASS] == ELFCLASS64 &&
                   e->e_ident[EI_DATA] == ELFDATA2LSB &&
                   __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ &&
                   (e->e_machine == EM_X86_64 || e->e_machine == EM_AARCH64) &&
                   (e->e_type == ET_DYN || e->e_type == ET_EXEC) &&
                   e->e_phentsize == sizeof(Elf64_Phdr) && e->e_shentsize == sizeof(Elf64_Shdr) &&
                   e->e_phnum != PN_XNUM && e->e_shnum && e->e_shstrndx < e->e_shnum &&
                   e->e_phoff % 8 == 0 && e->e_shoff % 8 == 0
               ? e
               : NULL;
}

/* Returns the build-id in a segment of notes, of *len bytes; NULL: there is none. */
static const uint8_t *build_id_in(const struct image *m, const Elf64_Phdr *ph, size_t *len) {
    const uint64_t align = ph->p_align == 8 ? 8 : 4;
    const uint8_t *p = at(m, ph->p_offset, ph->p_filesz), *end = p ? p + ph->p_filesz : NULL;
    Elf64_Nhdr n;

    while (p && (size_t)(end - p) >= sizeof n) {
        memcpy(&n, p, sizeof n);
        uint64_t text = (sizeof n + n.n_namesz + align - 1) / align * align;
        uint64_t next = text + (n.n_descsz + align - 1) / align * align;
        if (text + n.n_descsz > (size_t)(end - p))
            break;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == sizeof "GNU" &&
            memcmp(p + sizeof n, "GNU", sizeof "GNU") == 0) {
            *len = n.n_descsz;
            return p + text;
        }
        p = next < (size_t)(end - p) ? p + next : end;
    }
    return NULL;
}

/* Checks that it is the very file, and finds the table of function starts. Returns 0 or -errno. */
static int take_segments(const struct image *m, const Elf64_Ehdr *e, const uint8_t *build_id,
                         size_t len, struct eh_table *starts) {
    const Elf64_Phdr *ph = at(m, e->e_phoff, e->e_phnum * sizeof *ph);
    const uint8_t *id = NULL, *table = NULL;
    uint64_t base = 0;
    size_t n = 0, size = 0;

    if (!ph)
        return -ENOTSUP;
    for (const Elf64_Phdr *end = ph + e->e_phnum; ph < end; ph++) {
        if (ph->p_type == PT_NOTE && !id)
            id = build_id_in(m, ph, &n);
        if (ph->p_type == PT_GNU_EH_FRAME && !base) {
            table = at(m, ph->p_offset, ph->p_filesz);
            size = ph->p_filesz;
            base = ph->p_vaddr;
            if (!table)
                return -ENOTSUP;
        }
    }
    if ((id ? n : 0) != len || (len && memcmp(id, build_id, len) != 0))
        return -ENOTSUP;
    if (table)
        eh_table_take(starts, table, size, base);
    return 0;
}

/* Finds the sections that matter. Returns 0, or -ENOTSUP: it has a rare one, which libdwfl can handle. */
static int take_sections(struct image *m, const Elf64_Ehdr *e) {
    const Elf64_Shdr *all = at(m, e->e_shoff, e->e_shnum * sizeof *all), *s;
    const char *names = all ? texts(m, &all[e->e_shstrndx]) : NULL;

    if (!names)
        return -ENOTSUP;
    for (s = all; s < all + e->e_shnum; s++) {
        const char *name = names + s->sh_name;
        if (s->sh_name >= all[e->e_shstrndx].sh_size || s->sh_type == SHT_SYMTAB_SHNDX ||
            (s->sh_type == SHT_SYMTAB && m->is_own))
            return -ENOTSUP;
        m->has_debug |= strncmp(name, ".debug_", 7) == 0 || strncmp(name, ".zdebug_", 8) == 0;
        m->has_packed |= strcmp(name, ".gnu_debugdata") == 0;
        if (strcmp(name, ".gnu_debuglink") == 0 &&
            !(m->debuglink = at(m, s->sh_offset, s->sh_size)))
            return -ENOTSUP;
        if (m->debuglink && strcmp(name, ".gnu_debuglink") == 0 &&
            strnlen(m->debuglink, s->sh_size) == s->sh_size)
            return -ENOTSUP;
        if (s->sh_type == SHT_SYMTAB || (s->sh_type == SHT_DYNSYM && !m->is_own)) {
            m->symbols = s;
            m->is_own = s->sh_type == SHT_SYMTAB;
        }
    }
    s = m->symbols && m->symbols->sh_link < e->e_shnum ? &all[m->symbols->sh_link] : NULL;
    if (!s || s->sh_type != SHT_STRTAB || !(m->names = texts(m, s)) ||
        m->symbols->sh_entsize != sizeof(Elf64_Sym) || m->symbols->sh_offset % 8)
        return -ENOTSUP;
    m->nnames = s->sh_size;
    return 0;
}

unsigned symbols_elf_rank(const Elf64_Sym *sym, uint32_t section, const char *name) {
    int type = ELF64_ST_TYPE(sym->st_info), bind = ELF64_ST_BIND(sym->st_info);

    if (!name || !*name || section == SHN_UNDEF || section == SHN_ABS ||
        (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE))
        return 0;
    /* the name that people know has no leading underscores and a global binding */
    return type == STT_NOTYPE
               ? 1
               : 2u + 4 * (bind != STB_LOCAL) + 2 * (name[0] != '_') + (name[1] != '_');
}

/* ---- the table ---- */

struct place {
    uint32_t start, at;
};

/* Sorts by start, stably; p has space for 2 * n places. Returns where the sorted ones are. */
static const struct place *sort(struct place *p, size_t n) {
    struct place *from = p, *to = p + n;

    for (int d = 0; d < DIGITS; d++) {
        uint32_t first[(1 << DIGIT) + 1] = {0};
        const uint32_t mask = (1 << DIGIT) - 1;
        for (size_t i = 0; i < n; i++)
            first[(from[i].start >> d * DIGIT & mask) + 1]++;
        for (size_t i = 1; i <= mask; i++)
            first[i] += first[i - 1];
        for (size_t i = 0; i < n; i++)
            to[first[from[i].start >> d * DIGIT & mask]++] = from[i];
        struct place *other = from;
        from = to;
        to = other;
    }
    return from;
}

/* Returns a symbol's rank; 0: it does not count. This reads its name, which is necessary for few symbols. */
static unsigned rank_of(const struct image *m, const Elf64_Sym *s) {
    return s->st_name < m->nnames ? symbols_elf_rank(s, s->st_shndx, m->names + s->st_name) : 0;
}

static int is_function(const struct image *m, const Elf64_Sym *s) {
    return s->st_name && s->st_name < m->nnames && symbols_elf_rank(s, s->st_shndx, "name");
}

/* Returns the symbol that names the function at a start address, out of the symbols in [*p, end) that share it, and moves *p past these. */
static const Elf64_Sym *best_of(const struct image *m, const Elf64_Sym *table,
                                const struct place **p, const struct place *end) {
    const struct place *first = (*p)++;
    const Elf64_Sym *best = &table[first->at];

    for (; *p < end && (*p)->start == first->start; ++*p) {
        const Elf64_Sym *s = &table[(*p)->at];
        unsigned is = rank_of(m, s), was = rank_of(m, best);
        if (is > was || (is == was && s->st_size > best->st_size))
            best = s;
    }
    return best;
}

static int read_table(struct symbols_elf *e, const struct image *m) {
    const Elf64_Sym *table = at(m, m->symbols->sh_offset, m->symbols->sh_size);
    size_t all = m->symbols->sh_size / sizeof *table, n = 0;
    struct place *places =
        table && all < UINT32_MAX ? malloc((2 * all + 1) * sizeof *places) : NULL;

    for (size_t i = 0; places && i < all; i++) {
        if (!is_function(m, &table[i]))
            continue;
        if (table[i].st_value > UINT32_MAX) {
            free(places);
            places = NULL;
        } else {
            places[n++] = (struct place){(uint32_t)table[i].st_value, (uint32_t)i};
        }
    }
    e->syms = places ? malloc((n + 1) * sizeof *e->syms) : NULL;
    if (!e->syms) {
        free(places);
        return -ENOTSUP;
    }
    const struct place *p = sort(places, n), *end = p + n;
    while (p < end) {
        const Elf64_Sym *s = best_of(m, table, &p, end);
        uint32_t size = s->st_size < UINT32_MAX ? (uint32_t)s->st_size : UINT32_MAX;
        e->syms[e->nsyms++] = (struct symbols_sym){s->st_value, size, s->st_name};
    }
    symbols_kept_end(e->syms, e->nsyms);
    e->names = m->names;
    e->names_size = m->nnames;
    free(places);
    return 0;
}

/* ---- */

/* Maps the file. Returns 0 or -errno. */
static int map_file(const char *path, void **map, size_t *size) {
    int fd = plain_file_open(path);
    struct stat st = {0};

    if (fd < 0)
        return -ENOENT;
    *map = fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof(Elf64_Ehdr)
               ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
               : MAP_FAILED;
    close(fd);
    if (*map == MAP_FAILED) {
        *map = NULL;
        return -ENOTSUP;
    }
    *size = (size_t)st.st_size;
    return 0;
}

/* Reads the symbol table that was stripped into a file of its own. */
static int read_stripped(struct symbols_elf *e, const char *path) {
    int err = map_file(path, &e->stripped, &e->stripped_size);
    struct image m = {.bytes = e->stripped, .size = e->stripped_size};
    const Elf64_Ehdr *head = err ? NULL : head_of(&m);

    if (!err)
        err = head ? take_sections(&m, head) : -ENOTSUP;
    return err ? err : m.is_own ? read_table(e, &m) : -ENOTSUP;
}

int symbols_elf_open(struct symbols_elf *e, const char *path, const uint8_t *build_id, size_t len,
                     int has_lines) {
    char other[256];

    *e = (struct symbols_elf){0};
    int err = map_file(path, &e->map, &e->size);
    struct image m = {.bytes = e->map, .size = e->size};
    const Elf64_Ehdr *head = err ? NULL : head_of(&m);
    if (!err)
        err = head ? take_segments(&m, head, build_id, len, &e->starts) : -ENOTSUP;
    if (!err)
        err = take_sections(&m, head);
    int is_stripped = !err && is_by_build_id(other, build_id, len);
    if (!err && has_lines &&
        (m.has_debug || is_stripped || symbols_elf_is_beside(path, m.debuglink)))
        err = -ENOTSUP;
    else if (!err && m.is_own)
        err = read_table(e, &m);
    else if (!err && is_stripped)
        err = read_stripped(e, other);
    else if (!err)
        err =
            m.has_packed || symbols_elf_is_beside(path, m.debuglink) ? -ENOTSUP : read_table(e, &m);
    if (err)
        symbols_elf_close(e);
    return err;
}

void symbols_elf_close(struct symbols_elf *e) {
    if (e->map)
        munmap(e->map, e->size);
    if (e->stripped)
        munmap(e->stripped, e->stripped_size);
    free(e->syms);
    *e = (struct symbols_elf){0};
}
