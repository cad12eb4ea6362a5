/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - two ways of reading this process's own memory that cannot fault. Both are used as
 * pywalk's and the unwinder's read callback, both are async-signal-safe, allocate nothing, and belong to
 * one reader at a time.
 *
 * guard: for a signal handler that reads what its own thread owns. A page is tried with a cheap system
 *        call before it is read directly, and then counts as readable until guard_forget(): most reads are plain
 *        loads, and a torn pointer costs a failed system call and no SIGSEGV.
 * pages: for the sampler thread, which reads what other threads own while they sleep. Whole pages are
 *        copied by process_vm_readv and kept until pages_forget(): many small reads, few system calls.
 */
#ifndef PROBING_AGENT_MEMORY_H
#define PROBING_AGENT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_PAGE 4096u

/* Copies n bytes at `addr` of this process: 0 or -EFAULT. Sandboxes that refuse process_vm_readv are
 * served through /proc/self/mem once memory_init() has noticed. Clobbers errno. */
int memory_read_self(uint64_t addr, void *buf, size_t n);
/* 0; -ENOTSUP: there is no way of reading. Call it once, and again in a forked child. Not
 * async-signal-safe. */
int memory_init(void);
/* Whether memory_init() had to open /proc/self/mem. */
int memory_uses_file(void);

/* 9 bits of a hash choose the place: the code objects of a training lie in hundreds of pages. */
#define GUARD_PAGES 512u
struct guard {
    uint64_t page[GUARD_PAGES]; /* page number + 1 of readable pages */
};
void guard_forget(struct guard *g);
/* pywalk_read_fn; ctx: struct guard *. 0 or -EFAULT. */
int guard_read(void *ctx, uint64_t addr, void *buf, size_t n);

#define PAGES_KEPT 32u
struct pages {
    uint64_t number[PAGES_KEPT]; /* page number + 1, 0 = empty */
    uint8_t data[PAGES_KEPT][MEMORY_PAGE];
};
void pages_forget(struct pages *p);
/* pywalk_read_fn; ctx: struct pages *. 0 or -EFAULT. */
int pages_read(void *ctx, uint64_t addr, void *buf, size_t n);

#endif
