/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - reads this process's own memory in a way that cannot fault.
 *
 * guard: for a signal handler that reads data of its own thread. A page is probed with a cheap system call before its first direct
 *        read, and then counts as readable until guard_forget(). So most reads are plain loads, and an invalid pointer costs a failed
 *        system call instead of a SIGSEGV. Async-signal-safe; allocates nothing; one reader at a time.
 */
#ifndef PROBING_AGENT_MEMORY_H
#define PROBING_AGENT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_PAGE 4096u

/* Copies n bytes at `addr` of this process. Returns 0 or -EFAULT. Where a sandbox refuses process_vm_readv(),
 * it reads through /proc/thread-self/mem, once memory_init() has detected that. Clobbers errno. */
int memory_read_self(uint64_t addr, void *buf, size_t n);
/* Returns 0, or -ENOTSUP when neither way of reading works. Call it before the agent starts threads, and again in a forked child,
 * where it may be called from within fork(). */
int memory_init(void);
/* Whether memory_init() had to open /proc/thread-self/mem. */
int memory_uses_file(void);

/* Number of slots, chosen by 9 bits of a hash: the code objects of a training program lie in hundreds of pages. */
#define GUARD_PAGES 512u
struct guard {
    uint64_t page[GUARD_PAGES]; /* page number + 1 of readable pages */
};
void guard_forget(struct guard *g);
/* A pywalk_read_fn whose ctx is a struct guard *. Returns 0 or -EFAULT. */
int guard_read(void *ctx, uint64_t addr, void *buf, size_t n);

/* memory_read_self() as a pywalk_read_fn: for reading data of other threads through struct pywalk_pages (agent/pywalk/mem.h). */
static inline int memory_read(void *unused, uint64_t addr, void *buf, size_t n) {
    (void)unused;
    return memory_read_self(addr, buf, n);
}

struct pywalk_pages;
/* Replaces pywalk_pages_forget(): reads the cached pages that were used since the last call again, in one system call, and forgets the others. */
void memory_read_again(struct pywalk_pages *p);

#endif
