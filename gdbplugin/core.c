/* SPDX-License-Identifier: Apache-2.0 */
/* A core file: reads its memory and its notes, opens it, and makes an origin of it. */
#include "core.h"

#include <sys/procfs.h>
#include <sys/stat.h>

#include "agent/pywalk/image.h"
#include "text.h"
#include "traces/plain_file.h"

#define MAX_SEGMENTS (1u << 20)
#define MAX_COPY     (1u << 30)

/* ---- the file ---- */

static int read_file(void *core, uint64_t offset, void *buf, size_t n) {
    struct core *c = core;
    size_t have;
    int rc = plain_file_read(c->fd, offset, buf, n, &have);

    c->cut |= have < n && n <= c->size && offset <= c->size - n;
    return rc < 0 || have < n ? -EFAULT : 0;
}

void *core_copy(struct core *c, uint64_t offset, uint64_t n, int *rc) {
    int is_there = offset <= c->size && n <= c->size - offset && n <= MAX_COPY;
    char *p = is_there ? malloc(n + 1) : NULL;

    *rc = !is_there ? -EBADMSG : !p ? -ENOMEM : read_file(c, offset, p, n) < 0 ? -EBADMSG : 0;
    if (*rc < 0) {
        free(p);
        p = NULL;
    }
    return p;
}

/* ---- memory ---- */

/* Returns the first segment that ends behind addr, or NULL. */
static const struct core_segment *segment_at(const struct core *c, uint64_t addr) {
    size_t at = ARRAY_BEFORE(i, c->nsegments, c->segments[i].addr + c->segments[i].size <= addr);

    return at < c->nsegments ? &c->segments[at] : NULL;
}

/* Returns how many of the n bytes at addr are in one place, and their offset there: in the core itself, or (*in) in the file that was mapped there. */
static size_t find_bytes(struct core *c, uint64_t addr, size_t n, int own, struct core_module **in,
                         uint64_t *at) {
    const struct core_segment *s = segment_at(c, addr);
    const struct proc_map *m;
    uint64_t there;

    if (s && addr >= s->addr && addr - s->addr < s->filed) {
        *at = s->offset + (addr - s->addr);
        there = s->filed - (addr - s->addr);
        return there < n ? (size_t)there : n;
    }
    if (s && addr < s->addr &&
        s->addr - addr < n) /* the next segment's bytes are newer than the file */
        n = (size_t)(s->addr - addr);
    m = own ? NULL : proc_maps_at(&c->maps, addr);
    if (!m || m->perms[1] == 'w' ||
        !(*in = core_module(c, addr))) /* writable memory may be newer, too */
        return 0;
    (*in)->wanted = 1;
    *at = m->offset + (addr - m->start);
    there = (*in)->fd < 0 ? 0 : m->end - addr;
    return there < n ? (size_t)there : n;
}

static int read_bytes(struct core *c, uint64_t addr, char *out, size_t n, int own) {
    if (addr + n < addr)
        return -EFAULT;
    while (n > 0) {
        struct core_module *in = NULL;
        uint64_t at;
        size_t part = find_bytes(c, addr, n, own, &in, &at);
        int rc = !part ? -EFAULT
                 : in  ? core_read_module(in, at, out, part)
                       : pywalk_pages_read(c->pages, at, out, part);
        if (rc < 0)
            return rc;
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
    int rc;

    if (count == PN_XNUM) { /* more than 65534: the number is in section 0 */
        Elf64_Shdr sh;
        if (read_file(c, e->e_shoff, &sh, sizeof sh) < 0)
            return -EBADMSG;
        count = sh.sh_info;
    }
    if (count == 0 || count > MAX_SEGMENTS)
        return -EBADMSG;
    AUTO_FREE Elf64_Phdr *p = core_copy(c, e->e_phoff, count * sizeof *p, &rc);
    if (!p)
        return rc;
    c->segments = calloc(count, sizeof *c->segments);
    if (!c->segments)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        struct core_segment *g = &c->segments[c->nsegments];

        if (p[i].p_type != PT_LOAD || p[i].p_memsz == 0 ||
            p[i].p_vaddr + p[i].p_memsz < p[i].p_vaddr)
            continue;
        *g = (struct core_segment){p[i].p_vaddr, p[i].p_memsz, p[i].p_filesz, p[i].p_offset,
                                   p[i].p_flags};
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
        AUTO_FREE unsigned char *notes =
            p[i].p_type == PT_NOTE ? core_copy(c, p[i].p_offset, p[i].p_filesz, &rc) : NULL;

        c->cut |= rc == -EBADMSG;
        rc = notes ? read_notes(s, notes, p[i].p_filesz) : rc == -EBADMSG ? 0 : rc;
    }
    return rc;
}

static char *why_not(const char *path, struct core *c, Elf64_Ehdr *e) {
    if (read_file(c, 0, e, sizeof *e) < 0 || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0)
        return say("%s is no core file", path);
    if (e->e_type != ET_CORE)
        return say("%s is an ELF file but no core: give the core, and the program by --exe", path);
    if (e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != EM_X86_64)
        return say("%s is a core of another kind of machine: only x86-64 is known", path);
    return NULL;
}

static void core_close(struct origin *s) {
    struct core *c = s->core;

    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    for (size_t i = 0; i < c->nmodules; i++) {
        if (c->modules[i].fd >= 0)
            close(c->modules[i].fd);
        free(c->modules[i].path);
    }
    free(c->pages);
    proc_maps_free(&c->maps);
    free(c->modules);
    free(c->segments);
    free(c);
}

static int core_open(struct origin *s, const char *path, char **why) {
    struct core *c = s->core;
    struct stat st = {0};
    Elf64_Ehdr e;
    if ((c->fd = core_unpack(path, why)) < 0)
        return c->fd;
    int rc = fstat(c->fd, &st) < 0 ? -errno : 0;
    if (rc == 0 && !S_ISREG(st.st_mode))
        return fail(why, -EINVAL, "%s is no core file, but a directory, device or pipe", path);
    c->size = (uint64_t)st.st_size;
    if (rc == 0 && !(c->pages = pywalk_pages_new((struct pywalk_mem){read_file, c})))
        rc = -ENOMEM;
    if (rc < 0)
        return fail(why, rc, "cannot read the core %s: %s", path, strerror(-rc));
    *why = why_not(path, c, &e);
    if (*why)
        return -EBADMSG;
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
        *s->core = (struct core){.fd = -1, .files = *files};
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
