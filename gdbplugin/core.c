/* SPDX-License-Identifier: Apache-2.0 */
/* A core file: reads its memory and its notes, opens it, and makes an origin of it. */
#include "core.h"

#include <sys/procfs.h>
#include <sys/stat.h>

#include "agent/pywalk/image.h"
#include "text.h"

#define MAX_SEGMENTS (1u << 20)

/* ---- memory ---- */

/* Returns the first segment that ends behind addr, or NULL. */
static const struct core_segment *segment_at(const struct core *c, uint64_t addr) {
    size_t at = ARRAY_BEFORE(i, c->nsegments, c->segments[i].addr + c->segments[i].size <= addr);

    return at < c->nsegments ? &c->segments[at] : NULL;
}

/* Returns how many of the n bytes at addr are in the core itself, and their place in *p. */
static size_t own_bytes(const struct core *c, uint64_t addr, size_t n, const unsigned char **p) {
    const struct core_segment *s = segment_at(c, addr);

    if (!s || addr < s->addr)
        return 0;
    uint64_t in = addr - s->addr;
    if (in >= s->filed)
        return 0;
    *p = c->bytes + s->offset + in;
    return s->filed - in < n ? (size_t)(s->filed - in) : n;
}

/* The same for the file that was mapped there. */
static size_t file_bytes(struct core *c, uint64_t addr, size_t n, const unsigned char **p) {
    const struct proc_map *m = proc_maps_at(&c->maps, addr);
    /* Writable memory may be newer than the file. */
    struct core_module *mod = m && m->perms[1] != 'w' ? core_module(c, addr) : NULL;

    if (!mod)
        return 0;
    mod->wanted = 1;
    uint64_t at = m->offset + (addr - m->start);
    if (!mod->bytes || at >= mod->size)
        return 0;
    *p = mod->bytes + at;
    if (n > m->end - addr)
        n = (size_t)(m->end - addr);
    return mod->size - at < n ? (size_t)(mod->size - at) : n;
}

static int read_bytes(struct core *c, uint64_t addr, char *out, size_t n, int own) {
    if (addr + n < addr)
        return -EFAULT;
    while (n > 0) {
        const unsigned char *p;
        size_t part = own_bytes(c, addr, n, &p);

        if (part == 0 && !own) {
            /* Stop before the next segment's own bytes, which are newer than the file. */
            const struct core_segment *s = segment_at(c, addr);
            size_t most = n;
            if (s && addr < s->addr && s->addr - addr < most)
                most = (size_t)(s->addr - addr);
            part = file_bytes(c, addr, most, &p);
        }
        if (part == 0)
            return -EFAULT;
        memcpy(out, p, part);
        out += part;
        addr += part;
        n -= part;
    }
    return 0;
}

/* Reads from the core, else from the file that was mapped there. */
static int core_read(void *core, uint64_t addr, void *buf, size_t n) {
    return read_bytes(core, addr, buf, n, 0);
}

int core_read_own(void *core, uint64_t addr, void *buf, size_t n) {
    return read_bytes(core, addr, buf, n, 1);
}

/* ---- notes: threads with their registers, mapped files, the process's name ---- */

static int add_thread(struct origin *s, const unsigned char *p, size_t n) {
    struct elf_prstatus st;

    if (n < sizeof st)
        return 0;
    memcpy(&st, p, sizeof st);
    struct origin_thread *t = origin_add(s, st.pr_pid);
    if (!t)
        return -ENOMEM;
    t->known = REGS_ALL;
    _Static_assert(sizeof t->regs == sizeof st.pr_reg, "the same registers in the same order");
    memcpy(&t->regs, st.pr_reg, sizeof t->regs);
    if (s->n == 1) {
        s->signal = st.pr_cursig;
        s->struck = s->signal ? t->tid : 0;
    }
    return 0;
}

static void add_process(struct origin *s, const unsigned char *p, size_t n) {
    struct elf_prpsinfo ps;

    if (n < sizeof ps)
        return;
    memcpy(&ps, p, sizeof ps);
    s->pid = ps.pr_pid;
    snprintf(s->core->name, sizeof s->core->name, "%.*s", (int)sizeof ps.pr_fname, ps.pr_fname);
    snprintf(s->command, sizeof s->command, "%.*s", (int)sizeof ps.pr_psargs, ps.pr_psargs);
    for (size_t k = strlen(s->command); k > 0 && s->command[k - 1] == ' '; k--) /* padding */
        s->command[k - 1] = 0;
}

/* The note: count, page size; for each file its start, end and page in the file; then the names, each ended by NUL. */
static int add_files(struct core *c, const unsigned char *p, size_t n) {
    const unsigned char *end = p + n;
    uint64_t count = n >= 16 ? load64(p) : 0, page = n >= 16 ? load64(p + 8) : 0;
    const struct core_segment *g;
    int rc = 0;

    if (count > n / 24 || page == 0 || page > 1 << 20 || count * 24 + 16 > n)
        return 0;
    const char *name = (const char *)p + 16 + count * 24;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        const unsigned char *e = p + 16 + i * 24;
        size_t space = (size_t)((const char *)end - name), len = strnlen(name, space);
        struct proc_map m = {
            .start = load64(e), .end = load64(e + 8), .offset = load64(e + 16) * page};

        if (len == space)
            break;
        m.path = (char *)(uintptr_t)name;
        memcpy(m.perms, "r--p", 5);
        g = segment_at(c, m.start);
        if (g && m.start >= g->addr) {
            m.perms[0] = g->flags & PF_R ? 'r' : '-';
            m.perms[1] = g->flags & PF_W ? 'w' : '-';
            m.perms[2] = g->flags & PF_X ? 'x' : '-';
        }
        if (m.start < m.end)
            rc = proc_maps_add(&c->maps, &m);
        name += len + 1;
    }
    return rc;
}

static void add_auxv(struct core *c, const unsigned char *p, size_t n) {
    for (; n >= 16 && load64(p) != AT_NULL; p += 16, n -= 16) {
        if (load64(p) == AT_SYSINFO_EHDR)
            c->vdso = load64(p + 8);
        else if (load64(p) == AT_PHDR)
            c->phdr = load64(p + 8);
    }
}

/* Reads the origin's threads (the one that crashed is the first), its name and signal, and the core's maps. Returns 0 or -errno. */
static int read_notes(struct origin *s, const unsigned char *p, size_t n) {
    struct pywalk_note note;
    int rc = 0;

    while (rc == 0 && pywalk_note(&p, &n, &note)) {
        switch (note.h.n_type) {
        case NT_PRSTATUS:
            rc = add_thread(s, note.desc, note.h.n_descsz);
            break;
        case NT_PRPSINFO:
            add_process(s, note.desc, note.h.n_descsz);
            break;
        case NT_FILE:
            rc = add_files(s->core, note.desc, note.h.n_descsz);
            break;
        case NT_AUXV:
            add_auxv(s->core, note.desc, note.h.n_descsz);
            break;
        default:
            break;
        }
    }
    return rc;
}

/* ---- opening ---- */

static int by_address(const void *a, const void *b) {
    const struct core_segment *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int read_segments(struct origin *s, const Elf64_Ehdr *e) {
    struct core *c = s->core;
    uint64_t count = e->e_phnum;
    int rc = 0;

    if (count == PN_XNUM) { /* more than 65534: the number is in section 0 */
        Elf64_Shdr sh;
        if (e->e_shoff > c->size - sizeof sh)
            return -EBADMSG;
        memcpy(&sh, c->bytes + e->e_shoff, sizeof sh);
        count = sh.sh_info;
    }
    if (count == 0 || count > MAX_SEGMENTS || e->e_phoff > c->size ||
        count * sizeof(Elf64_Phdr) > c->size - e->e_phoff)
        return -EBADMSG;
    c->segments = calloc(count, sizeof *c->segments);
    if (!c->segments)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        struct core_segment *g = &c->segments[c->nsegments];
        Elf64_Phdr p;

        memcpy(&p, c->bytes + e->e_phoff + i * sizeof p, sizeof p);
        if (p.p_type != PT_LOAD || p.p_memsz == 0 || p.p_vaddr + p.p_memsz < p.p_vaddr)
            continue;
        *g = (struct core_segment){p.p_vaddr, p.p_memsz, p.p_filesz, p.p_offset, p.p_flags};
        if (g->filed > g->size)
            g->filed = g->size;
        if (g->filed && (g->offset > c->size || g->filed > c->size - g->offset)) {
            c->cut = 1;
            g->filed = g->offset < c->size ? c->size - g->offset : 0;
        }
        c->nsegments++;
    }
    qsort(c->segments, c->nsegments, sizeof *c->segments, by_address);
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        Elf64_Phdr p;

        memcpy(&p, c->bytes + e->e_phoff + i * sizeof p, sizeof p);
        if (p.p_type != PT_NOTE)
            continue;
        if (p.p_offset > c->size || p.p_filesz > c->size - p.p_offset)
            c->cut = 1;
        else
            rc = read_notes(s, c->bytes + p.p_offset, p.p_filesz);
    }
    return rc;
}

static char *why_not(const char *path, const unsigned char *bytes, size_t size) {
    Elf64_Ehdr e;

    if (size < sizeof e || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return say("%s is no core file", path);
    memcpy(&e, bytes, sizeof e);
    if (e.e_type != ET_CORE)
        return say("%s is an ELF file but no core: give the core, and the program by --exe", path);
    if (bytes[EI_CLASS] != ELFCLASS64 || e.e_machine != EM_X86_64)
        return say("%s is a core of another kind of machine: only x86-64 is known", path);
    return NULL;
}

static void core_close(struct origin *s) {
    struct core *c = s->core;

    if (!c)
        return;
    if (c->bytes)
        munmap((void *)(uintptr_t)c->bytes, c->size);
    for (size_t i = 0; i < c->nmodules; i++) {
        struct core_module *m = &c->modules[i];
        if (m->bytes)
            munmap((void *)(uintptr_t)m->bytes, m->size);
        free(m->path);
        free(m->found);
    }
    proc_maps_free(&c->maps);
    free(c->modules);
    free(c->segments);
    free(c);
}

int core_map(int fd, const unsigned char **bytes, size_t *size) {
    struct stat st;
    int rc = fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;

    if (rc == 0 && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        rc = p == MAP_FAILED ? -errno : 0;
        if (rc == 0) {
            *bytes = p;
            *size = (size_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

static int core_open(struct origin *s, const char *path, char **why) {
    struct core *c = s->core;
    int rc, fd = core_unpack(path, why);
    Elf64_Ehdr e;

    if (fd < 0)
        return fd;
    rc = core_map(fd, &c->bytes, &c->size);
    if (rc < 0)
        return fail(why, rc, "cannot read the core %s: %s", path, strerror(-rc));
    *why = why_not(path, c->bytes, c->size);
    if (*why)
        return -EBADMSG;
    memcpy(&e, c->bytes, sizeof e);
    rc = read_segments(s, &e);
    if (rc == 0 && s->n == 0)
        rc = -EBADMSG;
    if (rc < 0)
        return fail(why, rc, "the core %s cannot be used: %s", path,
                    rc == -EBADMSG ? "its headers and notes are damaged or cut off"
                                   : strerror(-rc));
    if (s->pid == 0)
        s->pid = s->v[0].tid;
    return core_modules(c);
}

/* ---- the core as an origin ---- */

static int copy_maps(const struct core *c, struct proc_maps *out) {
    static char vdso[] = "[vdso]";
    struct proc_map m = {.start = c->vdso, .end = c->vdso, .perms = "r-xp", .path = vdso};
    const struct core_segment *s = c->vdso ? segment_at(c, c->vdso) : NULL;
    int rc = 0;

    if (s && s->addr == c->vdso)
        m.end = c->vdso + s->size;
    for (size_t i = 0; i <= c->maps.n && rc == 0; i++) {
        if (m.end > m.start && (i == c->maps.n || c->maps.v[i].start > m.start)) {
            rc = proc_maps_add(out, &m);
            m.end = m.start;
        }
        if (rc == 0 && i < c->maps.n)
            rc = proc_maps_add(out, &c->maps.v[i]);
    }
    return rc;
}

int origin_core(struct origin *s, const char *path, const struct origin_files *files, char **why) {
    int rc = -ENOMEM;

    *s = (struct origin){.kind = ORIGIN_CORE, .close = core_close, .missing = core_missing};
    *why = NULL;
    s->core = calloc(1, sizeof *s->core);
    if (s->core) {
        s->core->files = *files;
        rc = core_open(s, path, why);
    }
    if (rc == 0)
        rc = copy_maps(s->core, &s->maps);
    if (rc < 0) {
        origin_close(s);
        return rc;
    }
    s->mem = (struct pywalk_mem){core_read, s->core};
    if (!s->command[0])
        snprintf(s->command, sizeof s->command, "%s", s->core->name);
    /* The program is the file that holds the program headers which the kernel gave to the process. */
    const struct proc_map *exe = s->core->phdr ? proc_maps_at(&s->core->maps, s->core->phdr) : NULL;
    snprintf(s->exe, sizeof s->exe, "%s", exe ? exe->path : "");
    qsort(s->v, s->n, sizeof *s->v, origin_by_tid);
    struct origin_thread *main_thread = origin_thread(s, s->pid);
    if (main_thread)
        snprintf(main_thread->name, sizeof main_thread->name, "%s", s->core->name);
    return 0;
}
