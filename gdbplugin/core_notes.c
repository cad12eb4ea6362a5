/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of a core: threads with their registers, mapped files, the process's name. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>

#include "core.h"

static int add_thread(struct core *c, const unsigned char *p, size_t n) {
    struct elf_prstatus st;
    struct core_thread *v;

    if (n < sizeof st)
        return 0;
    if ((c->nthreads & (c->nthreads - 1)) == 0) {
        v = realloc(c->threads, (c->nthreads ? c->nthreads * 2 : 1) * sizeof *v);
        if (!v)
            return -ENOMEM;
        c->threads = v;
    }
    memcpy(&st, p, sizeof st);
    v = &c->threads[c->nthreads++];
    v->tid = st.pr_pid;
    v->signal = st.pr_cursig;
    _Static_assert(sizeof v->regs == sizeof st.pr_reg, "the same registers in the same order");
    memcpy(&v->regs, st.pr_reg, sizeof v->regs);
    if (c->nthreads == 1)
        c->signal = v->signal;
    return 0;
}

static void add_process(struct core *c, const unsigned char *p, size_t n) {
    struct elf_prpsinfo ps;

    if (n < sizeof ps)
        return;
    memcpy(&ps, p, sizeof ps);
    c->pid = ps.pr_pid;
    snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof ps.pr_fname, ps.pr_fname);
    snprintf(c->args, sizeof c->args, "%.*s", (int)sizeof ps.pr_psargs, ps.pr_psargs);
    for (size_t k = strlen(c->args); k > 0 && c->args[k - 1] == ' '; k--) /* the kernel's */
        c->args[k - 1] = 0;
}

static uint64_t word(const unsigned char *p) {
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* count, page size; start, end, page of the file for each; then the names, each ended by NUL. */
static int add_files(struct core *c, const unsigned char *p, size_t n) {
    const unsigned char *end = p + n;
    uint64_t count = n >= 16 ? word(p) : 0, page = n >= 16 ? word(p + 8) : 0;
    const char *name;
    int rc = 0;

    if (count > n / 24 || page == 0 || page > 1 << 20 || count * 24 + 16 > n)
        return 0;
    name = (const char *)p + 16 + count * 24;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        const unsigned char *e = p + 16 + i * 24;
        size_t room = (size_t)((const char *)end - name), len = strnlen(name, room);
        struct proc_map m = {.start = word(e), .end = word(e + 8), .offset = word(e + 16) * page};

        if (len == room)
            break;
        m.path = (char *)(uintptr_t)name;
        memcpy(m.perms, "r--p", 5);
        for (size_t k = 0; k < c->nsegments; k++) {
            const struct core_segment *s = &c->segments[k];
            if (m.start >= s->addr && m.start < s->addr + s->size) {
                m.perms[0] = s->flags & PF_R ? 'r' : '-';
                m.perms[1] = s->flags & PF_W ? 'w' : '-';
                m.perms[2] = s->flags & PF_X ? 'x' : '-';
                break;
            }
        }
        if (m.start < m.end)
            rc = proc_maps_add(&c->maps, &m);
        name += len + 1;
    }
    return rc;
}

static void add_auxv(struct core *c, const unsigned char *p, size_t n) {
    for (; n >= 16 && word(p) != AT_NULL; p += 16, n -= 16) {
        if (word(p) == AT_SYSINFO_EHDR)
            c->vdso = word(p + 8);
        else if (word(p) == AT_PHDR)
            c->phdr = word(p + 8);
    }
}

int core_notes(struct core *c, const unsigned char *p, size_t n) {
    int rc = 0;

    while (rc == 0 && n >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr h;
        size_t name, desc;
        const unsigned char *d;

        memcpy(&h, p, sizeof h);
        name = ((size_t)h.n_namesz + 3) & ~(size_t)3;
        desc = ((size_t)h.n_descsz + 3) & ~(size_t)3;
        if (name > n - sizeof h || h.n_descsz > n - sizeof h - name)
            break;
        d = p + sizeof h + name;
        switch (h.n_type) {
        case NT_PRSTATUS:
            rc = add_thread(c, d, h.n_descsz);
            break;
        case NT_PRPSINFO:
            add_process(c, d, h.n_descsz);
            break;
        case NT_FILE:
            rc = add_files(c, d, h.n_descsz);
            break;
        case NT_AUXV:
            add_auxv(c, d, h.n_descsz);
            break;
        default:
            break;
        }
        if (sizeof h + name + desc > n)
            break;
        p += sizeof h + name + desc;
        n -= sizeof h + name + desc;
    }
    return rc;
}
