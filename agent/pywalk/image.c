/* SPDX-License-Identifier: Apache-2.0 */
/* ELF images in the target's memory. Everything read is checked: it may be torn or hostile. */
#include "image.h"

#include <errno.h>
#include <string.h>

#define MAX_SYMBOLS (1u << 22)

static int get(const struct pywalk_image *im, uint64_t addr, void *buf, size_t n) {
    return im->mem.read(im->mem.ctx, addr, buf, n);
}

static int read_dynamic(struct pywalk_image *im, uint64_t addr, uint64_t size) {
    Elf64_Dyn d;
    uint64_t n = size / sizeof d;
    int rc = 0;

    for (uint64_t i = 0; i < n && i < 1024 && rc == 0; i++) {
        rc = get(im, addr + i * sizeof d, &d, sizeof d);
        if (rc != 0 || d.d_tag == DT_NULL)
            break;
        uint64_t *to = d.d_tag == DT_SYMTAB     ? &im->symtab
                       : d.d_tag == DT_STRTAB   ? &im->strtab
                       : d.d_tag == DT_GNU_HASH ? &im->gnu_hash
                       : d.d_tag == DT_HASH     ? &im->hash
                                                : NULL;
        if (to != NULL) /* ld.so has added the bias, except where the section is read-only */
            *to = d.d_un.d_ptr + (d.d_un.d_ptr < im->start ? im->bias : 0);
        else if (d.d_tag == DT_STRSZ)
            im->strsz = d.d_un.d_val;
    }
    if (rc == 0 && (im->symtab == 0 || im->strtab == 0))
        rc = -ENOEXEC;
    return rc;
}

int pywalk_elf_read(struct pywalk_mem mem, uint64_t start, struct pywalk_elf *out) {
    Elf64_Ehdr *e = &out->e;
    int rc = mem.read(mem.ctx, start, e, sizeof *e);

    if (rc == 0 &&
        (memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 || e->e_ident[EI_CLASS] != ELFCLASS64 ||
         e->e_machine != EM_X86_64 || e->e_phentsize != sizeof *out->p ||
         e->e_phnum > sizeof out->p / sizeof *out->p))
        rc = -ENOEXEC;
    return rc != 0 || e->e_phnum == 0
               ? rc
               : mem.read(mem.ctx, start + e->e_phoff, out->p, e->e_phnum * sizeof *out->p);
}

int pywalk_image_open(struct pywalk_image *im, struct pywalk_mem mem, uint64_t ehdr) {
    struct pywalk_elf elf;
    uint64_t dynamic = 0, dynamic_size = 0, end;
    bool loaded = false;
    int rc = pywalk_elf_read(mem, ehdr, &elf);

    memset(im, 0, sizeof *im);
    im->mem = mem;
    for (unsigned i = 0; rc == 0 && i < elf.e.e_phnum; i++) {
        const Elf64_Phdr *p = &elf.p[i];
        if (p->p_type == PT_LOAD) {
            if (!loaded) {
                im->bias = ehdr - (p->p_vaddr - p->p_offset);
                im->start = ehdr;
                loaded = true;
            }
            if (im->segments < PYWALK_SEGMENTS) {
                im->segment[im->segments].start = im->bias + p->p_vaddr;
                im->segment[im->segments].size = p->p_memsz;
                im->segment[im->segments++].flags = p->p_flags;
            }
            end = im->bias + p->p_vaddr + p->p_memsz;
            im->end = end > im->end ? end : im->end;
        } else if (p->p_type == PT_DYNAMIC) {
            dynamic = p->p_vaddr;
            dynamic_size = p->p_memsz;
        } else if (p->p_type == PT_GNU_EH_FRAME) {
            im->eh_frame_hdr = im->bias + p->p_vaddr;
        }
    }
    if (rc == 0 && (!loaded || dynamic == 0))
        rc = -ENOEXEC;
    return rc != 0 ? rc : read_dynamic(im, im->bias + dynamic, dynamic_size);
}

/* Checks whether symbol number `index` has this name. Returns 0, -ENOENT or -EFAULT. */
static int symbol_is(const struct pywalk_image *im, uint32_t index, const char *name,
                     uint64_t *addr, uint64_t *size) {
    Elf64_Sym s;
    char have[64];
    size_t n = strlen(name) + 1;
    int rc = get(im, im->symtab + (uint64_t)index * sizeof s, &s, sizeof s);

    if (rc != 0)
        return rc;
    if (s.st_shndx == SHN_UNDEF || n > sizeof have || s.st_name + n > im->strsz ||
        ELF64_ST_TYPE(s.st_info) == STT_TLS || ELF64_ST_TYPE(s.st_info) == STT_GNU_IFUNC)
        return -ENOENT;
    rc = get(im, im->strtab + s.st_name, have, n);
    if (rc != 0)
        return rc;
    if (memcmp(have, name, n) != 0)
        return -ENOENT;
    *addr = im->bias + s.st_value;
    if (size != NULL)
        *size = s.st_size;
    return 0;
}

static int gnu_lookup(const struct pywalk_image *im, const char *name, uint64_t *addr,
                      uint64_t *size) {
    uint32_t head[4], hash = 5381, index, value; /* buckets, first symbol, bloom words, shift */
    uint64_t buckets, chain;

    for (const char *p = name; *p != '\0'; p++)
        hash = hash * 33 + (unsigned char)*p;
    int rc = get(im, im->gnu_hash, head, sizeof head);
    if (rc != 0 || head[0] == 0)
        return rc != 0 ? rc : -ENOENT;
    buckets = im->gnu_hash + sizeof head + (uint64_t)head[2] * 8;
    chain = buckets + (uint64_t)head[0] * 4;
    rc = get(im, buckets + (uint64_t)(hash % head[0]) * 4, &index, sizeof index);
    if (rc != 0 || index < head[1])
        return rc != 0 ? rc : -ENOENT;
    for (unsigned guard = 0; guard < 4096; guard++, index++) {
        rc = get(im, chain + (uint64_t)(index - head[1]) * 4, &value, sizeof value);
        if (rc != 0)
            return rc;
        if ((value | 1) == (hash | 1)) {
            rc = symbol_is(im, index, name, addr, size);
            if (rc != -ENOENT)
                return rc;
        }
        if ((value & 1) != 0)
            break;
    }
    return -ENOENT;
}

static int sysv_lookup(const struct pywalk_image *im, const char *name, uint64_t *addr,
                       uint64_t *size) {
    uint32_t head[2]; /* buckets, symbols */
    int rc = get(im, im->hash, head, sizeof head);

    if (rc != 0)
        return rc;
    for (uint32_t i = 1; i < head[1] && i < MAX_SYMBOLS; i++) {
        rc = symbol_is(im, i, name, addr, size);
        if (rc != -ENOENT)
            return rc;
    }
    return -ENOENT;
}

int pywalk_image_symbol(const struct pywalk_image *im, const char *name, uint64_t *addr,
                        uint64_t *size) {
    return im->gnu_hash != 0 ? gnu_lookup(im, name, addr, size)
           : im->hash != 0   ? sysv_lookup(im, name, addr, size)
                             : -ENOENT;
}

/* ---- the build-id ---- */

bool pywalk_note(const unsigned char **p, size_t *n, struct pywalk_note *out) {
    size_t name, all;

    if (*n < sizeof out->h)
        return false;
    memcpy(&out->h, *p, sizeof out->h);
    name = ((size_t)out->h.n_namesz + 3) & ~(size_t)3;
    if (name > *n - sizeof out->h || out->h.n_descsz > *n - sizeof out->h - name)
        return false;
    out->name = (const char *)*p + sizeof out->h;
    out->desc = *p + sizeof out->h + name;
    all = sizeof out->h + name + (((size_t)out->h.n_descsz + 3) & ~(size_t)3);
    all = all < *n ? all : *n; /* the last one need not be padded */
    *p += all;
    *n -= all;
    return true;
}

size_t pywalk_build_id(struct pywalk_mem mem, uint64_t start, unsigned char *id) {
    unsigned char notes[4096];
    const unsigned char *at;
    struct pywalk_elf elf;
    struct pywalk_note note;
    uint64_t bias = start;
    size_t left;

    if (pywalk_elf_read(mem, start, &elf) != 0)
        return 0;
    for (unsigned i = elf.e.e_phnum; start && i-- > 0;) /* the first segment holds the header */
        if (elf.p[i].p_type == PT_LOAD)
            bias = start - (elf.p[i].p_vaddr - elf.p[i].p_offset);
    for (unsigned i = 0; i < elf.e.e_phnum; i++) {
        const Elf64_Phdr *p = &elf.p[i];
        /* its place in memory may differ from that in the file: patchelf moves it behind everything else */
        if (p->p_type != PT_NOTE || p->p_filesz > sizeof notes ||
            mem.read(mem.ctx, start ? bias + p->p_vaddr : p->p_offset, notes, p->p_filesz) != 0)
            continue;
        for (at = notes, left = p->p_filesz; pywalk_note(&at, &left, &note);) {
            if (note.h.n_type != NT_GNU_BUILD_ID || note.h.n_namesz != 4 ||
                memcmp(note.name, "GNU", 4) != 0 || note.h.n_descsz > PYWALK_BUILD_ID)
                continue;
            memcpy(id, note.desc, note.h.n_descsz);
            return note.h.n_descsz;
        }
    }
    return 0;
}
