/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - reading a core file: the kernel's or GDB's, whole or cut short, compressed or not.
 *
 *     rc = origin_core(&s, "core.zst", &files, &why);    // origin.h; s.core is the core then
 *     origin_read(&s, addr, buf, n);
 *
 * A core usually leaves out what the mapped files hold. Their pages are taken from the files on this
 * machine, at the same path, under the sysroot or by build-id; a file with another build-id than the one that was
 * mapped is never used. Everything read from the core is checked: it may be cut or hostile.
 */
#ifndef PROBING_INSPECT_CORE_H
#define PROBING_INSPECT_CORE_H

#include "origin.h"

struct core_segment {
    uint64_t addr, size, filed, offset; /* filed: bytes of it that are in the core */
    uint32_t flags;
};
struct core_module { /* a file that was mapped */
    char *path;      /* as the process knew it */
    uint64_t start, end;
    const unsigned char *bytes; /* of the file on this machine; NULL: it is not at hand */
    size_t size;
    char *found; /* where it is here */
    enum { MODULE_UNTRIED, MODULE_HERE, MODULE_ABSENT, MODULE_OTHER } state;
    int wanted; /* something was read that only it has */
};
struct core {
    const unsigned char *bytes;
    size_t size;
    int cut; /* shorter than its headers say */
    size_t nsegments, nmodules;
    struct core_segment *segments; /* ascending */
    struct core_module *modules;
    struct proc_maps maps; /* the files, then usable like those of a process */
    char name[32];
    uint64_t vdso, phdr; /* AT_SYSINFO_EHDR, AT_PHDR; 0 = not known */
    struct origin_files files;
};

/* Only what is in the core itself, where origin_read() has what was mapped from files, too. */
int core_read_own(void *core, uint64_t addr, void *buf, size_t n);

/* Maps a regular file, whose descriptor it closes; an empty one is left at NULL. 0 or -errno. */
int core_map(int fd, const unsigned char **bytes, size_t *size);

/* core_modules.c: c->modules, from the maps. 0 or -ENOMEM. */
int core_modules(struct core *c);
/* The module that holds addr, or NULL; searched for on this machine at the first call. */
struct core_module *core_module(struct core *c, uint64_t addr);
/* One line on what is not there; NULL: all is. malloc()ed. */
char *core_missing(struct origin *s);

/* unpack.c: a descriptor of the core itself, or -errno with *why: of `path`, or of a temporary file that has what is packed in it. */
int core_unpack(const char *path, char **why);

#endif
