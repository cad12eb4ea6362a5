/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - reading a core file: the kernel's or GDB's, whole or cut short, compressed or not.
 *
 *     char *why;
 *     struct core *c;
 *     rc = core_open(&c, "core.zst", &files, &why);
 *     core_read(c, addr, buf, n);            // from the core, else from the file that was mapped there
 *     fd = core_file(c, index, &path);       // of one of c->maps
 *     core_close(c);
 *
 * A core usually leaves out what the mapped files hold. Their pages are taken from the files on this
 * machine, at the same path, under the sysroot or by build-id; a file with another build-id than the one that was
 * mapped is never used. Everything read from the core is checked: it may be cut or hostile.
 */
#ifndef PROBING_INSPECT_CORE_H
#define PROBING_INSPECT_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "proc.h"

struct origin_files;
struct core_thread {
    pid_t tid;
    int signal;
    struct user_regs_struct regs;
};
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
    size_t nsegments, nthreads, nmodules;
    struct core_segment *segments; /* ascending */
    struct core_thread *threads;   /* as in the core: the one that crashed is the first */
    struct core_module *modules;
    struct proc_maps maps; /* the files, then usable like those of a process */
    pid_t pid;
    char name[32], args[96];
    int signal;
    uint64_t vdso, phdr; /* AT_SYSINFO_EHDR, AT_PHDR; 0 = not known */
    char *sysroot, *exe;
};

int core_open(struct core **out, const char *path, const struct origin_files *files, char **why);
int core_read(struct core *c, uint64_t addr, void *buf, size_t n);
/* Only what is in the core itself. */
int core_read_own(const struct core *c, uint64_t addr, void *buf, size_t n);
/* The module that holds addr, or NULL; looked for on this machine when it was not yet. */
struct core_module *core_module(struct core *c, uint64_t addr);
/* One line on what is not there; NULL: all is. malloc()ed. */
char *core_missing(const struct core *c);
void core_close(struct core *c);

/* core_notes.c: fills in threads, maps and names from the notes. 0 or -errno. */
int core_notes(struct core *c, const unsigned char *p, size_t n);
/* core_modules.c */
int core_modules(struct core *c);
void core_find_module(struct core *c, struct core_module *m);
/* unpack.c: a descriptor of the core itself: of `path`, or of a temporary file that has what is packed in it. */
int core_unpack(const char *path, char **why);

#endif
