/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.h - unwinds native stacks by libdw: call frame information from .eh_frame of the mapped files, names from .symtab or
 * .dynsym, source lines and inlined functions where there is DWARF. The caller supplies memory and registers.
 *
 *     struct native *n;
 *     native_open(&n, &source, NATIVE_DEBUG);
 *     count = native_walk(n, mem, tid, &regs, 1, frames, NATIVE_MAX, &complete);
 *     native_name(n, frames[0].probe, &name);
 *     native_close(n);
 *
 * Files are opened when a frame first needs them and stay open, so that the second stack is fast. Never uses the network. With NATIVE_DEBUG separate debug
 * files under /usr/lib/debug are used for names and lines. One thread at a time. Functions return 0 or a count, or -errno.
 */
#ifndef PROBING_INSPECT_NATIVE_H
#define PROBING_INSPECT_NATIVE_H

#include <sys/user.h>

#include "agent/pywalk/mem.h"
#include "traces/native_names.h"

#define NATIVE_DEBUG 1u /* use local separate debug files */
#define NATIVE_MAX   512

struct native;
struct core;
/* What an unwinder is opened on. The struct is copied; what it points to must live as long as the unwinder. */
struct native_source {
    const struct proc_maps *maps;
    struct pywalk_mem mem;
    pid_t pid;         /* a live process, else 0 */
    struct core *core; /* or NULL */
};
struct native_frame {
    uint64_t pc;    /* where execution continues */
    uint64_t probe; /* an address inside the current instruction or the call: pc or pc - 1 */
};

int native_open(struct native **out, const struct native_source *source, unsigned flags);
void native_close(struct native *n);
/* Unwinds a thread's frames, innermost first, at most max; there is always at least the pc itself. *complete: the walk reached the thread's first frame.
 * Without `all` only pc and stack pointer are known: the walk may end early then, at a frame whose caller needs another register, and is never complete. */
int native_walk(struct native *n, struct pywalk_mem mem, pid_t tid,
                const struct user_regs_struct *regs, int all, struct native_frame *out, size_t max,
                int *complete);
/* What native_names.h knows about a frame with that `probe`; *out is valid until the next call. */
void native_name(struct native *n, uint64_t probe, struct native_name *out);
size_t native_functions(struct native *n, uint64_t probe, const struct inlined_frame **out);

#endif
