/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/loaded.h"

#include <dlfcn.h>

#include "agent/base/fork_lock.h"
#include "agent/base/known.h"
#include "agent/base/memory.h"
#include "writer/sys.h"

#define MOST  20000 /* entries; a longer list must be circular (read during a change) */
#define TRIES 10

struct fork_lock fork_lock = {PTHREAD_MUTEX_INITIALIZER, 0};

int loaded_each(int (*fn)(void *ctx, uint64_t at, const struct link_map *entry), void *ctx) {
    uint64_t at = (uint64_t)(uintptr_t)__atomic_load_n(&_r_debug.r_map, __ATOMIC_ACQUIRE);
    struct link_map m;
    int rc = 0;
    for (unsigned i = 0; at && !rc; i++) {
        if (i == MOST || memory_read_self(at, &m, sizeof m))
            return -EAGAIN;
        rc = fn(ctx, at, &m);
        at = (uint64_t)(uintptr_t)m.l_next;
    }
    return rc;
}

/* Reads a string of less than n bytes page by page, because the page after its end may not be mapped. */
static int read_text(uint64_t at, char *buf, size_t n) {
    for (size_t have = 0, part; have < n; have += part) {
        part = MEMORY_PAGE - (at + have) % MEMORY_PAGE;
        part = part < n - have ? part : n - have;
        if (!at || memory_read_self(at + have, buf + have, part))
            return -EFAULT;
        if (memchr(buf + have, 0, part))
            return 0;
    }
    return -ENAMETOOLONG;
}

static int by_name(void *ctx, uint64_t at UNUSED, const struct link_map *m) {
    const char **want = ctx, *base;
    if (read_text((uint64_t)(uintptr_t)m->l_name, (char *)want[1], PATH_MAX))
        return 0;
    base = strrchr(want[1], '/');
    return base && !strncmp(base + 1, want[0], strlen(want[0]));
}

int loaded_find(const char *library, void **handle) {
    char path[PATH_MAX];
    const char *arg[2] = {library, path};
    int rc = -EAGAIN; /* the list was read in the middle of a change */
    for (int i = 0; rc == -EAGAIN && i < TRIES; i++)
        rc = loaded_each(by_name, arg);
    if (rc <= 0)
        return -ENOENT;
    if (!handle)
        return 0;
    *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return *handle ? 0 : -ENOENT;
}

const char *loaded_functions(void *handle, const struct loaded_function *list, size_t n) {
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(handle, list[i].name);
        if (!p && list[i].older)
            p = dlsym(handle, list[i].older);
        if (!p && !list[i].optional)
            missing = list[i].name;
        memcpy(list[i].to, &p, sizeof p);
    }
    dlerror(); /* clear our error, so that the program does not see it */
    return missing;
}

struct print {
    uint64_t h;
    uint32_t n;
};

static int mix(void *ctx, uint64_t at, const struct link_map *m) {
    struct print *p = ctx;
    p->h = known_mix(known_mix(p->h, at), m->l_addr ^ (uint64_t)(uintptr_t)m->l_ld);
    p->n++;
    return 0;
}

uint64_t loaded_fingerprint(uint32_t *n) {
    struct print p = {1, 0};
    int rc = loaded_each(mix, &p);
    if (n)
        *n = p.n;
    return rc ? 0 : p.h ? p.h : 1;
}

/* ---- replacing pointers in loaded libraries ---- */

/* Returns whether the line of /proc/self/maps describes the mapping that contains `place`, and that mapping is read-only. */
static int is_read_only(void *place, char *line) {
    struct proc_map m;
    uintptr_t at = (uintptr_t)place;
    return !proc_map_line(line, &m) && m.start <= at && at < m.end && m.perms[1] != 'w';
}

int loaded_patch(void *place, void *value) {
    void *page = (void *)((uintptr_t)place & ~((uintptr_t)MEMORY_PAGE - 1));
    int closed = proc_maps_each(is_read_only, place) == 1;
    if (closed && mprotect(page, MEMORY_PAGE, PROT_READ | PROT_WRITE))
        return -errno;
    __atomic_store_n((void **)place, value, __ATOMIC_RELEASE);
    if (closed)
        mprotect(page, MEMORY_PAGE, PROT_READ);
    return 0;
}

void **loaded_import(void *handle, const char *name, const void *original) {
    struct link_map *m = NULL;
    uint64_t at[DT_JMPREL + 1] = {0}; /* d_val by tag; glibc has relocated the pointers */
    Dl_info of, in;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &m) || !m)
        return NULL;
    for (const ElfW(Dyn) *d = m->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag > 0 && d->d_tag <= DT_JMPREL)
            at[d->d_tag] = d->d_un.d_val;
    const ElfW(Rela) *rel = (const void *)at[DT_JMPREL];
    const ElfW(Sym) *symbols = (const void *)at[DT_SYMTAB];
    const char *strings = (const char *)at[DT_STRTAB];
    for (size_t i = 0; rel && symbols && strings && i < at[DT_PLTRELSZ] / sizeof *rel; i++) {
        if (ELF64_R_TYPE(rel[i].r_info) != R_X86_64_JUMP_SLOT ||
            strcmp(strings + symbols[ELF64_R_SYM(rel[i].r_info)].st_name, name))
            continue;
        void **got = (void **)(m->l_addr + rel[i].r_offset);
        void *now = __atomic_load_n(got, __ATOMIC_ACQUIRE);
        if (now == original)
            return got;
        /* Before the first call (lazy binding) the entry points to a PLT stub in the library itself. */
        return dladdr(now, &in) && dladdr(got, &of) && in.dli_fbase == of.dli_fbase ? got : NULL;
    }
    return NULL;
}
