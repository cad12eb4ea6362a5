/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - reads an ELF image in the target's memory: its dynamic symbols and its read-only parts.
 *
 *     struct pywalk_image im;
 *     if (pywalk_image_open(&im, mem, start_of_mapping) == 0)
 *         pywalk_image_symbol(&im, "_PyRuntime", &addr, &size);
 *
 * No file is read, so a deleted, replaced or foreign (container) file does no harm, and a core serves as well
 * as a process. x86-64 only. Errors: -ENOEXEC no such image, -ENOENT no such symbol, -EFAULT.
 */
#ifndef PROBING_PYWALK_IMAGE_H
#define PROBING_PYWALK_IMAGE_H

#include "pywalk.h"

#include <elf.h>
#include <stdbool.h>

#define PYWALK_SEGMENTS 16
struct pywalk_image {
    struct pywalk_mem mem;
    uint64_t start, end; /* of all its loaded segments; run-time addresses */
    uint64_t bias;       /* run-time address minus the address in the file */
    struct {
        uint64_t start, size;
        uint32_t flags; /* PF_R, PF_W, PF_X */
    } segment[PYWALK_SEGMENTS];
    unsigned segments;
    uint64_t eh_frame_hdr; /* 0: none */
    uint64_t symtab, strtab, strsz, gnu_hash, hash;
};

/* The ELF header and the program headers of an image, in memory or in a file that `mem` reads. Only for x86-64, and with no more headers than fit. */
struct pywalk_elf {
    Elf64_Ehdr e;
    Elf64_Phdr p[64];
};
int pywalk_elf_read(struct pywalk_mem mem, uint64_t start, struct pywalk_elf *out);

/* Reads the first ELF note in the *n bytes at *p and moves both past it; false: there is no note. */
struct pywalk_note {
    Elf64_Nhdr h;
    const char *name;
    const unsigned char *desc;
};
bool pywalk_note(const unsigned char **p, size_t *n, struct pywalk_note *out);

/* Copies the build-id of the image whose first byte is at `start` of mem (0 for a file). Returns its length; 0: there is none, or it cannot be
 * read. Reads only the headers and the notes, and checks everything in them. */
#define PYWALK_BUILD_ID 64
size_t pywalk_build_id(struct pywalk_mem mem, uint64_t start, unsigned char *id);

/* Opens the image; `ehdr` is where the file's first byte is mapped. */
int pywalk_image_open(struct pywalk_image *im, struct pywalk_mem mem, uint64_t ehdr);
/* Looks up a defined dynamic symbol; size may be NULL. */
int pywalk_image_symbol(const struct pywalk_image *im, const char *name, uint64_t *addr,
                        uint64_t *size);

/*
 * cold.c: finds where the compiler put the unlikely part of a function. GCC moves unlikely code (.cold) elsewhere, and in a stripped program no
 * symbol names it; but the function jumps there, and the unwind information (.eh_frame) of that piece says that its stack frame exists
 * from its first instruction on. A tail-call interpreter (3.14+ with some compilers) even calls its instructions from
 * there, so that every Python stack has such return addresses. Reads the unwind table once (some 100 KB); allocates; not for
 * signal handlers. Returns 0; -ENOENT: the function has no such part, or there is no table of the known kind; -EFAULT; -ENOMEM.
 */
int pywalk_cold_part(const struct pywalk_image *im, uint64_t start, uint64_t end,
                     uint64_t *cold_start, uint64_t *cold_end);

#endif
