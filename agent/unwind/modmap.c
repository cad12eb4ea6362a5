/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/unwind/modmap.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "agent/base/known.h"
#include "agent/base/memory.h"

#define MODULES_MAX 8192u
#define PHDRS_MAX   64u

static uint64_t address(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

/* The executable range and the unwind table's header of one ELF image. */
static int read_module(const struct link_map *lm, int is_program, struct modmap_module *out) {
    ElfW(Phdr) ph[PHDRS_MAX];
    uint64_t at;
    size_t n;
    memset(out, 0, sizeof *out);
    if (is_program) {
        at = getauxval(AT_PHDR);
        n = getauxval(AT_PHNUM);
    } else {
        ElfW(Ehdr) eh;
        int rc = memory_read_self(lm->l_addr, &eh, sizeof eh);
        if (rc)
            return rc;
        if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_phentsize != sizeof ph[0])
            return -EBADMSG;
        at = lm->l_addr + eh.e_phoff;
        n = eh.e_phnum;
    }
    if (n > PHDRS_MAX)
        n = PHDRS_MAX;
    int rc = memory_read_self(at, ph, n * sizeof ph[0]);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        uint64_t start = lm->l_addr + ph[i].p_vaddr, end = start + ph[i].p_memsz;
        if (ph[i].p_type == PT_LOAD && (ph[i].p_flags & PF_X)) {
            if (!out->end || start < out->start)
                out->start = start;
            if (end > out->end)
                out->end = end;
        } else if (ph[i].p_type == PT_GNU_EH_FRAME) {
            out->hdr = start;
        }
    }
    return out->end ? 0 : -ENOENT;
}

/* Walks the loader's list; calls nothing when `out` is NULL. The loader may be changing it: every
 * entry is copied first, and the walk is bounded. */
static int walk_list(uint64_t *fingerprint, struct modmap_module *out, uint32_t max,
                     uint32_t *count) {
    uint64_t h = 1;
    uint32_t n = 0, entries = 0;
    uint64_t at = address(_r_debug.r_map);
    while (at) {
        struct link_map lm;
        if (++entries > MODULES_MAX)
            return -EAGAIN;
        if (memory_read_self(at, &lm, sizeof lm))
            return -EAGAIN;
        h = known_mix(known_mix(h, at), lm.l_addr ^ address(lm.l_ld));
        if (out && n < max && read_module(&lm, entries == 1, &out[n]) == 0)
            n++;
        at = address(lm.l_next);
    }
    *fingerprint = h;
    *count = out ? n : entries;
    return 0;
}

static void sort(struct modmap_module *m, uint32_t n) {
    for (uint32_t i = 1; i < n;
         i++) { /* nearly sorted or small: loader order is by address, mostly */
        struct modmap_module x = m[i];
        uint32_t j = i;
        for (; j > 0 && m[j - 1].start > x.start; j--)
            m[j] = m[j - 1];
        m[j] = x;
    }
}

/* Whether every module of `a` is in `b` too (both sorted). */
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
    uint64_t print;
    uint32_t entries, n;
    if (_r_debug.r_state != RT_CONSISTENT)
        return -EAGAIN;
    uint32_t missed = __atomic_exchange_n(&m->missed, 0, __ATOMIC_RELAXED);
    int rc = walk_list(&print, NULL, 0, &entries);
    if (rc) {
        __atomic_fetch_or(&m->missed, missed, __ATOMIC_RELAXED); /* still to be looked for */
        return rc;
    }
    if (m->view && print == m->fingerprint)
        return 0;
    uint32_t max = entries + 16;
    size_t bytes = sizeof(struct modmap_view) + max * sizeof(struct modmap_module);
    struct modmap_view *v =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (v == MAP_FAILED)
        return -ENOMEM;
    rc = walk_list(&print, v->module, max, &n);
    if (rc || _r_debug.r_state != RT_CONSISTENT) {
        munmap(v, bytes);
        return rc ? rc : -EAGAIN;
    }
    v->bytes = bytes;
    v->n = n;
    sort(v->module, n);
    v->older = m->view;
    if (m->view)
        v->generation = m->view->generation + !subset(m->view, v);
    m->fingerprint = print;
    quiesce_set(&m->view, v);
    for (uint32_t i = 0; i < MODMAP_UNKNOWN; i++)
        __atomic_store_n(&m->unknown[i], 0, __ATOMIC_RELAXED);
    return 1;
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
    if (!m->view)
        return;
    struct modmap_view *v = m->view->older;
    m->view->older = NULL;
    while (v) {
        struct modmap_view *next = v->older;
        munmap(v, v->bytes);
        v = next;
    }
}

const struct modmap_module *modmap_find(const struct modmap_view *v, uint64_t pc) {
    uint32_t lo = 0, hi = v ? v->n : 0;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (v->module[mid].start <= pc)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || pc >= v->module[lo - 1].end)
        return NULL;
    return &v->module[lo - 1];
}
