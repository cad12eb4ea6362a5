/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.h - native stacks of a stopped process, by libdw: call frame information from .eh_frame of
 * the mapped files, memory and registers from stop.h, names from .symtab or .dynsym.
 *
 *     struct native *n;
 *     native_open(&n, pid, NATIVE_DEBUG);
 *     count = native_stack(n, &stop, i, frames, NATIVE_MAX, &complete);
 *     native_name(n, &frames[0], &name);
 *     native_close(n);
 *
 * Files are opened when a frame first needs them and stay open: the second stack is quick. Never goes to
 * the network. With NATIVE_DEBUG separate debug files under /usr/lib/debug are used for names.
 * One thread at a time. Functions return 0 or a count, or -errno.
 */
#ifndef PROBING_INSPECT_NATIVE_H
#define PROBING_INSPECT_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#include "stop.h"

#define NATIVE_DEBUG 1u /* look for local separate debug files */
#define NATIVE_MAX   512

struct native;
struct origin;
struct origin_thread;
struct native_frame {
    uint64_t pc;    /* where it will go on; */
    uint64_t probe; /* an address inside the executing instruction's call: pc, or pc - 1 */
};
struct native_name {
    char symbol[1024]; /* "" = unknown; without "@VERSION"; as in the file, C++ mangled */
    uint64_t offset;   /* from the symbol's start */
    char module[256];  /* base name of the file, "" = anonymous memory */
    char path[512];
};

int native_open(struct native **out, pid_t pid, unsigned flags);
/* The same for any source, which must outlive it. */
int native_open_origin(struct native **out, struct origin *s, unsigned flags);
void native_close(struct native *n);
/* Frames of thread s->v[i], innermost first; at most max. *complete: the walk reached the thread's
 * first frame. There is always at least the pc itself. */
int native_stack(struct native *n, struct stop *s, size_t i, struct native_frame *out, size_t max,
                 int *complete);
/* The same of a source's thread; 0 frames when nothing is known of its registers. With REGS_PC_SP the walk may end early
 * at a frame that keeps its place in another register. */
int native_walk(struct native *n, struct origin *s, const struct origin_thread *t,
                struct native_frame *out, size_t max, int *complete);
void native_name(struct native *n, const struct native_frame *f, struct native_name *out);

#endif
