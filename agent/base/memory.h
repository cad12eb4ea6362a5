/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - this process's own memory: what is mapped, and reading it in a way that cannot fault.
 *
 * guard: for a signal handler that reads what its own thread owns. A page is tried with a cheap system
 *        call before it is read directly, and then counts as readable until guard_forget(): most reads are plain
 *        loads, and a torn pointer costs a failed system call and no SIGSEGV. Async-signal-safe, allocates nothing, belongs to
 *        one reader at a time.
 */
#ifndef PROBING_AGENT_MEMORY_H
#define PROBING_AGENT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_PAGE 4096u

/* Copies n bytes at `addr` of this process: 0 or -EFAULT. Sandboxes that refuse process_vm_readv are
 * served through /proc/self/mem once memory_init() has noticed. Clobbers errno. */
int memory_read_self(uint64_t addr, void *buf, size_t n);
/* 0; -ENOTSUP: there is no way of reading. Call it before there are threads of ours, and again in a forked child, where it
 * may be called from within fork(). */
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

/* The same as a pywalk_read_fn; for who reads what other threads own through struct pywalk_pages (agent/pywalk/mem.h). */
static inline int memory_read(void *unused, uint64_t addr, void *buf, size_t n) {
    (void)unused;
    return memory_read_self(addr, buf, n);
}

struct pywalk_pages;
/* In place of pywalk_pages_forget(): those of our pages that were used since the last time are read again, in one system call. */
void memory_read_again(struct pywalk_pages *p);

/* Calls fn with each line of /proc/thread-self/maps, which it may change, until it returns another number than 0, which is returned; or -errno. */
int memory_maps(int (*fn)(void *ctx, char *line), void *ctx);

#endif
