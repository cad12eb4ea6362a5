/* SPDX-License-Identifier: Apache-2.0 */
#include "image_id.h"

#include <elf.h>
#include <string.h>

/* From a note segment in memory; its length, 0: there is none. */
static size_t id_of_notes(const unsigned char *p, size_t n, unsigned char *id) {
    while (n >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr h;
        size_t name, all;

        memcpy(&h, p, sizeof h);
        name = ((size_t)h.n_namesz + 3) & ~(size_t)3;
        all = sizeof h + name + (((size_t)h.n_descsz + 3) & ~(size_t)3);
        if (name > n || all > n)
            return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(p + sizeof h, "GNU", 4) == 0 &&
            h.n_descsz <= IMAGE_ID_MAX) {
            memcpy(id, p + sizeof h + name, h.n_descsz);
            return h.n_descsz;
        }
        p += all;
        n -= all;
    }
    return 0;
}

size_t image_build_id(image_get_fn get, const void *ctx, unsigned char *id) {
    unsigned char notes[4096];
    Elf64_Ehdr e;
    Elf64_Phdr p;

    if (get(ctx, 0, &e, sizeof e) != 0 || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
        e.e_phentsize != sizeof p || e.e_phnum > 64)
        return 0;
    for (unsigned i = 0; i < e.e_phnum; i++) {
        size_t n;
        if (get(ctx, e.e_phoff + i * sizeof p, &p, sizeof p) != 0)
            break;
        if (p.p_type != PT_NOTE || p.p_filesz > sizeof notes ||
            get(ctx, p.p_offset, notes, p.p_filesz) != 0)
            continue;
        n = id_of_notes(notes, p.p_filesz, id);
        if (n)
            return n;
    }
    return 0;
}
