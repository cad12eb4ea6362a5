/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native_files.h - the ELF files behind the mappings of a process or of another source, for libdwfl.
 *
 * Of a live process: the very file that is mapped, through its own root directory (a container), else what of it is
 * in memory (deleted or replaced). Of a core: core.h's. Of what GDB has: the file at this path when its build-id is that in
 * memory, else memory. So no other file than the one that runs is ever used.
 */
#ifndef PROBING_INSPECT_NATIVE_FILES_H
#define PROBING_INSPECT_NATIVE_FILES_H

#include <elfutils/libdwfl.h>
#include <stddef.h>
#include <stdint.h>

#include "proc.h"

struct origin;
struct native_files {
    const struct proc_maps *maps; /* of the source, or own */
    struct proc_maps own;
    struct origin *source; /* NULL: a live process */
    pid_t pid;
    void **images; /* what elf_memory() was given: must stay */
    size_t nimages;
};

int native_files_process(struct native_files *f, pid_t pid);
int native_files_origin(struct native_files *f, struct origin *s);
/* For the find_elf callback: a descriptor, or -1 with *elf set (from memory), or -1. */
int native_files_open(struct native_files *f, uint64_t start, char **name, Elf **elf);
void native_files_free(struct native_files *f);

#endif
