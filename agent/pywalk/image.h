/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - an ELF image as it lies in the target's memory: its dynamic symbols and its read-only parts.
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

#define PYWALK_SEGMENTS 16
struct pywalk_image {
    struct pywalk_mem mem;
    uint64_t start, end; /* of all its loaded segments, run-time addresses */
    uint64_t bias;       /* run-time address minus the address in the file */
    struct {
        uint64_t start, size;
        uint32_t flags; /* PF_R, PF_W, PF_X */
    } segment[PYWALK_SEGMENTS];
    unsigned segments;
    uint64_t eh_frame_hdr; /* 0: none */
    uint64_t symtab, strtab, strsz, gnu_hash, hash;
};

/* `ehdr`: where the file's first byte is mapped. */
int pywalk_image_open(struct pywalk_image *im, struct pywalk_mem mem, uint64_t ehdr);
/* A defined dynamic symbol; *size may be NULL. */
int pywalk_image_symbol(const struct pywalk_image *im, const char *name, uint64_t *addr,
                        uint64_t *size);

#endif
