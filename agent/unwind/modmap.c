/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/modmap.h"

#include <sys/auxv.h>

#include "agent/base/known.h"
#include "agent/base/loaded.h"
#include "agent/base/memory.h"
#include "agent/pywalk/image.h"
#include "writer/sys.h"

/* The modules that add() has found in the loader's list. */
struct listing {
    struct modmap_module *module;
    uint32_t n, max;
    int later; /* whether the first entry, the program, has been seen */
};

/* Adds the executable range and the unwind table's header (if any) of one ELF image. */
static int add(void *ctx, uint64_t at UNUSED, const struct link_map *lm) {
    struct listing *l = ctx;
    struct modmap_module m = {0};
    struct pywalk_elf elf;
    const ElfW(Phdr) *ph = elf.p;
    size_t n = 0;
    if (l->later++) {
        n = pywalk_elf_read((struct pywalk_mem){memory_read, NULL}, lm->l_addr, &elf)
                ? 0
                : elf.e.e_phnum;
    } else { /* the program's l_addr is not the address of its ELF header */
        size_t have = getauxval(AT_PHNUM), most = sizeof elf.p / sizeof *elf.p;
        have = have < most ? have : most;
        n = memory_read_self(getauxval(AT_PHDR), elf.p, have * sizeof *ph) ? 0 : have;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t start = lm->l_addr + ph[i].p_vaddr, end = start + ph[i].p_memsz;
        if (ph[i].p_type == PT_LOAD && (ph[i].p_flags & PF_X)) {
            if (!m.end || start < m.start)
                m.start = start;
            if (end > m.end)
                m.end = end;
        } else if (ph[i].p_type == PT_GNU_EH_FRAME) {
            m.hdr = start;
        }
    }
    if (m.end && l->n < l->max)
        l->module[l->n++] = m;
    return 0;
}

static void sort(struct modmap_module *m, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) { /* nearly sorted: loader order is by address, mostly */
        struct modmap_module x = m[i];
        uint32_t j = i;
        for (; j > 0 && m[j - 1].start > x.start; j--)
            m[j] = m[j - 1];
        m[j] = x;
    }
}

/* Returns whether every module of `a` is in `b`, too (both are sorted). */
static int subset(const struct modmap_view *a, const struct modmap_view *b) {
    uint32_t j = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        while (j < b->n && b->module[j].start < a->module[i].start)
            j++;
        if (j == b->n || memcmp(&a->module[i], &b->module[j], sizeof a->module[i]))
            return 0;
    }
    return 1;
}

int modmap_refresh(struct modmap *m) {
    uint32_t entries;
    __atomic_store_n(&m->missed, 0, __ATOMIC_RELAXED);
    uint64_t print = _r_debug.r_state == RT_CONSISTENT ? loaded_fingerprint(&entries) : 0;
    if (!print)
        goto again;
    if (m->view && print == m->fingerprint)
        return 0;
    size_t bytes = sizeof(struct modmap_view) + entries * sizeof(struct modmap_module);
    struct modmap_view *v = sys_pages(bytes);
    if (!v)
        return -ENOMEM;
    struct listing l = {.module = v->module, .max = entries};
    int rc = loaded_each(add, &l);
    if (rc || _r_debug.r_state != RT_CONSISTENT || loaded_fingerprint(NULL) != print) {
        sys_pages_free(v, bytes);
        goto again;
    }
    v->bytes = bytes;
    v->n = l.n;
    sort(v->module, l.n);
    v->older = m->view;
    if (m->view)
        v->generation = m->view->generation + !subset(m->view, v);
    m->fingerprint = print;
    quiesce_set(&m->view, v);
    for (uint32_t i = 0; i < MODMAP_UNKNOWN; i++)
        __atomic_store_n(&m->unknown[i], 0, __ATOMIC_RELAXED);
    return 1;
again: /* retry soon: as long as there is no list, no walk reports a missing module */
    __atomic_store_n(&m->missed, 1, __ATOMIC_RELAXED);
    return -EAGAIN;
}

void modmap_miss(struct modmap *m, uint64_t pc) {
    uint64_t region = (pc >> 16) + 1;
    uint64_t *place = &m->unknown[known_mix(0, region) % MODMAP_UNKNOWN];
    if (__atomic_load_n(place, __ATOMIC_RELAXED) == region)
        return;
    __atomic_store_n(place, region, __ATOMIC_RELAXED);
    __atomic_store_n(&m->missed, 1, __ATOMIC_RELAXED);
}

void modmap_reclaim(struct modmap *m) {
    for (struct modmap_view *v; m->view && (v = m->view->older);) {
        m->view->older = v->older;
        munmap(v, v->bytes);
    }
}

const struct modmap_module *modmap_find(const struct modmap_view *v, uint64_t pc) {
    size_t n = ARRAY_BEFORE(i, v ? v->n : 0, v->module[i].start <= pc);
    return n > 0 && pc < v->module[n - 1].end ? &v->module[n - 1] : NULL;
}
