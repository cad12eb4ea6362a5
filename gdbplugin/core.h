/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - reads a core file: one of the kernel or of GDB, whole or cut short, compressed or not.
 *
 *     rc = origin_core(&s, "core.zst", &files, &why);    // origin.h; s.core is the core then
 *     origin_read(&s, addr, buf, n);
 *
 * A core usually leaves out the contents of the mapped files. Their pages are taken from the files on this machine, at the same path, under the sysroot or by
 * build-id; a file whose build-id differs from that of the mapped file is never used. Everything read from the core is checked, as it may be cut or hostile. No
 * file is mapped: a core that is still being copied, or cut short meanwhile, gives an error and no SIGBUS.
 */
#ifndef PROBING_INSPECT_CORE_H
#define PROBING_INSPECT_CORE_H

#include "origin.h"

struct core_segment {
    uint64_t addr, size, filed, offset; /* filed: number of its bytes that are in the core */
    uint32_t flags;
};
struct core_module { /* a file that was mapped */
    char *path;      /* as the process knew it */
    uint64_t start, end;
    int fd; /* the file on this machine; negative: it was not found */
    enum { MODULE_UNTRIED, MODULE_HERE, MODULE_ABSENT, MODULE_OTHER } state;
    int wanted; /* something was read that only this file has */
};
struct core {
    int fd;
    uint64_t size;
    struct pywalk_pages *pages; /* of the core, by their offsets */
    int cut;                    /* the file is shorter than its headers say, or has become so */
    size_t nsegments, nmodules;
    struct core_segment *segments; /* ascending */
    struct core_module *modules;
    struct proc_maps maps; /* mapped files, usable like the maps of a process */
    char name[32];
    uint64_t vdso, phdr; /* AT_SYSINFO_EHDR, AT_PHDR; 0 = not known */
    struct origin_files files;
};

/* Reads only what is in the core itself; origin_read() also reads the mapped files. */
int core_read_own(void *core, uint64_t addr, void *buf, size_t n);

/* Returns a copy of n bytes of the core file, to be freed; or NULL, with -EBADMSG (it does not have them) or -ENOMEM in *rc. */
void *core_copy(struct core *c, uint64_t offset, uint64_t n, int *rc);
/* A pywalk_read_fn for the file of a module. */
int core_read_module(void *module, uint64_t offset, void *buf, size_t n);

/* core_modules.c: makes c->modules from the maps. Returns 0 or -ENOMEM. */
int core_modules(struct core *c);
/* Returns the module that holds addr, or NULL. The first call for a module searches its file on this machine. */
struct core_module *core_module(struct core *c, uint64_t addr);
/* Returns one line about what is missing, malloc()ed; NULL when nothing is. */
char *core_missing(struct origin *s);

/* unpack.c: returns a descriptor of the core, or -errno with *why: of `path` itself, or of a temporary file with its unpacked contents. */
int core_unpack(const char *path, char **why);

#endif
