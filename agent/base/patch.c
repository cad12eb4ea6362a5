/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/patch.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)

struct relro {
    uintptr_t at;
    int found;
};

static int in_relro(struct dl_phdr_info *info, size_t size, void *arg) {
    struct relro *r = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + ph->p_vaddr;
        if (ph->p_type == PT_GNU_RELRO && r->at >= start && r->at < start + ph->p_memsz)
            r->found = 1;
    }
    return r->found;
}

int patch_word(void *place, void *value) {
    struct relro r = {(uintptr_t)place, 0};
    void *page = (void *)((uintptr_t)place & ~(PAGE - 1));
    dl_iterate_phdr(in_relro, &r);
    if (r.found && mprotect(page, PAGE, PROT_READ | PROT_WRITE))
        return -errno;
    __atomic_store_n((void **)place, value, __ATOMIC_RELEASE);
    if (r.found)
        mprotect(page, PAGE, PROT_READ);
    return 0;
}

void **patch_import(void *handle, const char *name, const void *original) {
    struct link_map *m = NULL;
    const ElfW(Rela) *rel = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t bytes = 0;
    Dl_info of, in;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &m) || !m)
        return NULL;
    for (const ElfW(Dyn) *d = m->l_ld; d->d_tag != DT_NULL;
         d++) { /* glibc has made them addresses */
        if (d->d_tag == DT_JMPREL)
            rel = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_PLTRELSZ)
            bytes = d->d_un.d_val;
        else if (d->d_tag == DT_SYMTAB)
            symbols = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (const void *)d->d_un.d_ptr;
    }
    for (size_t i = 0; rel && symbols && strings && i < bytes / sizeof *rel; i++) {
        if (ELF64_R_TYPE(rel[i].r_info) != R_X86_64_JUMP_SLOT ||
            strcmp(strings + symbols[ELF64_R_SYM(rel[i].r_info)].st_name, name))
            continue;
        void **slot = (void **)(m->l_addr + rel[i].r_offset);
        void *now = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (now == original)
            return slot;
        /* Called for the first time, it goes through a stub of the library's own. */
        return dladdr(now, &in) && dladdr(slot, &of) && in.dli_fbase == of.dli_fbase ? slot : NULL;
    }
    return NULL;
}
