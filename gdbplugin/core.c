/* SPDX-License-Identifier: Apache-2.0 */
/* A core file: opening it, its segments, its memory; and the core as a source. */
#include "core.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "origin.h"
#include "say.h"

#define MAX_SEGMENTS (1u << 20)

/* ---- memory ---- */

/* The first segment that ends beyond addr, or NULL. */
static const struct core_segment *segment_at(const struct core *c, uint64_t addr) {
    size_t lo = 0, hi = c->nsegments;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (addr >= c->segments[mid].addr + c->segments[mid].size)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->nsegments ? &c->segments[lo] : NULL;
}

/* How many of n bytes at addr lie in the core itself; 0: none. */
static size_t own_bytes(const struct core *c, uint64_t addr, size_t n, const unsigned char **p) {
    const struct core_segment *s = segment_at(c, addr);
    uint64_t in;

    if (!s || addr < s->addr)
        return 0;
    in = addr - s->addr;
    if (in >= s->filed)
        return 0;
    *p = c->bytes + s->offset + in;
    return s->filed - in < n ? (size_t)(s->filed - in) : n;
}

int core_read_own(const struct core *c, uint64_t addr, void *buf, size_t n) {
    char *out = buf;

    while (n > 0) {
        const unsigned char *p;
        size_t part = own_bytes(c, addr, n, &p);

        if (part == 0)
            return -EFAULT;
        memcpy(out, p, part);
        out += part;
        addr += part;
        n -= part;
    }
    return 0;
}

/* The same from the file that was mapped there. */
static size_t file_bytes(struct core *c, uint64_t addr, size_t n, const unsigned char **p) {
    const struct proc_map *m = proc_maps_at(&c->maps, addr);
    /* What could be written is older in the file. */
    struct core_module *mod = m && m->perms[1] != 'w' ? core_module(c, addr) : NULL;
    uint64_t at;

    if (!mod)
        return 0;
    mod->wanted = 1;
    at = m->offset + (addr - m->start);
    if (!mod->bytes || at >= mod->size)
        return 0;
    *p = mod->bytes + at;
    if (n > m->end - addr)
        n = (size_t)(m->end - addr);
    return mod->size - at < n ? (size_t)(mod->size - at) : n;
}

int core_read(struct core *c, uint64_t addr, void *buf, size_t n) {
    char *out = buf;

    if (addr + n < addr)
        return -EFAULT;
    while (n > 0) {
        const unsigned char *p;
        size_t part = own_bytes(c, addr, n, &p);

        if (part == 0) {
            /* Not beyond the next segment's own bytes: what is in the core is newer. */
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

/* ---- opening ---- */

static int by_address(const void *a, const void *b) {
    const struct core_segment *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int read_segments(struct core *c, const Elf64_Ehdr *e) {
    uint64_t count = e->e_phnum;
    int rc = 0;

    if (count == PN_XNUM) { /* more than 65534: in section 0 */
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
        struct core_segment *s = &c->segments[c->nsegments];
        Elf64_Phdr p;

        memcpy(&p, c->bytes + e->e_phoff + i * sizeof p, sizeof p);
        if (p.p_type != PT_LOAD || p.p_memsz == 0 || p.p_vaddr + p.p_memsz < p.p_vaddr)
            continue;
        *s = (struct core_segment){p.p_vaddr, p.p_memsz, p.p_filesz, p.p_offset, p.p_flags};
        if (s->filed > s->size)
            s->filed = s->size;
        if (s->filed && (s->offset > c->size || s->filed > c->size - s->offset)) {
            c->cut = 1;
            s->filed = s->offset < c->size ? c->size - s->offset : 0;
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
            rc = core_notes(c, c->bytes + p.p_offset, p.p_filesz);
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

int core_open(struct core **out, const char *path, const struct origin_files *files, char **why) {
    struct core *c = calloc(1, sizeof *c);
    int fd = -1, rc = -ENOMEM;
    Elf64_Ehdr e;
    struct stat st;
    void *p;

    *why = NULL;
    *out = NULL;
    if (!c)
        return rc;
    c->bytes = MAP_FAILED;
    if ((files->sysroot && !(c->sysroot = strdup(files->sysroot))) ||
        (files->exe && !(c->exe = strdup(files->exe))))
        goto fail;
    rc = fd = core_unpack(path, why);
    if (fd < 0)
        goto fail;
    rc = fstat(fd, &st) < 0 ? -errno : !S_ISREG(st.st_mode) ? -EINVAL : 0;
    if (rc == 0 && st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        rc = p == MAP_FAILED ? -errno : 0;
        c->bytes = p;
        c->size = (size_t)st.st_size;
    }
    if (rc < 0) {
        *why = say("cannot read the core %s: %s", path, strerror(-rc));
        goto fail;
    }
    *why = why_not(path, c->size ? c->bytes : NULL, c->size);
    if (*why) {
        rc = -EBADMSG;
        goto fail;
    }
    memcpy(&e, c->bytes, sizeof e);
    rc = read_segments(c, &e);
    if (rc == 0 && c->nthreads == 0)
        rc = -EBADMSG;
    if (rc < 0) {
        *why = say("the core %s cannot be used: %s", path,
                   rc == -EBADMSG ? "its headers and notes are damaged or cut off" : strerror(-rc));
        goto fail;
    }
    if (c->pid == 0)
        c->pid = c->threads[0].tid;
    rc = core_modules(c);
    if (rc < 0)
        goto fail;
    close(fd);
    *out = c;
    return 0;
fail:
    if (fd >= 0)
        close(fd);
    core_close(c);
    return rc;
}

void core_close(struct core *c) {
    if (!c)
        return;
    if (c->bytes != MAP_FAILED && c->bytes)
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
    free(c->threads);
    free(c->sysroot);
    free(c->exe);
    free(c);
}

/* ---- the core as a source ---- */

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

/* The file that holds the program headers that the kernel handed to the process. */
static void find_exe(const struct core *c, struct origin *s) {
    const struct proc_map *m = c->phdr ? proc_maps_at(&c->maps, c->phdr) : NULL;

    if (m)
        snprintf(s->exe, sizeof s->exe, "%s", m->path);
}

int origin_core(struct origin *s, const char *path, const struct origin_files *files, char **why) {
    int rc;

    memset(s, 0, sizeof *s);
    s->kind = ORIGIN_CORE;
    s->mem = (struct pywalk_mem){origin_read, s};
    rc = core_open(&s->core, path, files, why);
    if (rc < 0)
        goto fail;
    s->pid = s->core->pid;
    s->signal = s->core->signal;
    snprintf(s->command, sizeof s->command, "%s", s->core->args[0] ? s->core->args : s->core->name);
    find_exe(s->core, s);
    rc = copy_maps(s->core, &s->maps);
    for (size_t i = 0; i < s->core->nthreads && rc == 0; i++) {
        struct origin_thread *t = origin_add(s);
        if (!t)
            rc = -ENOMEM;
        else {
            t->tid = t->inner = s->core->threads[i].tid;
            t->known = REGS_ALL;
            t->regs = s->core->threads[i].regs;
            if (t->tid == s->pid)
                snprintf(t->name, sizeof t->name, "%s", s->core->name);
        }
    }
    if (rc == 0) {
        qsort(s->v, s->n, sizeof *s->v, origin_by_tid);
        return 0;
    }
fail:
    origin_close(s);
    return rc;
}
