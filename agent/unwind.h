/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind.h - native return addresses of a thread, from its registers and its stack.
 *
 * Our own walk over call frame information, in place of libunwind's: it takes no lock (libunwind's
 * walk takes the loader's lock, which the interrupted thread may hold), touches no thread-local storage,
 * cannot fault (all reads go through a callback), and serves a sleeping thread, read from
 * outside, as well as the running one that reads itself. A frame costs a table look-up and two
 * or three loads once its program counter has been seen.
 *
 *     unwind_init(&u);
 *     unwind_refresh(&u);                     // sampler thread
 *     n = unwind_walk(&u, &mem, &regs, pcs, NULL, max, &cut);   // any thread, async-signal-safe
 *
 * What has no call frame information (code that a program generated, some hand-written assembler) ends
 * the walk: there `cut` is set. Nothing is guessed.
 */
#ifndef PROBING_AGENT_UNWIND_H
#define PROBING_AGENT_UNWIND_H

#include <stddef.h>
#include <stdint.h>

#include "cfi.h"
#include "modmap.h"

#define UNWIND_CACHE (1u << 13) /* program counters whose rule is kept: 128 KiB */

struct unwind {
    struct modmap map;
    struct unwind_entry *cache;
};

/* Which registers are known: of a sleeping thread only pc and sp are. */
enum { UNWIND_BP = 1, UNWIND_BX = 2, UNWIND_R10 = 4 };
struct unwind_regs {
    uint64_t pc, sp, bp, bx, r10;
    unsigned known;
};

/* 0 or -ENOMEM. */
int unwind_init(struct unwind *u);
void unwind_free(struct unwind *u);
/* Follows dlopen and dlclose. */
int unwind_refresh(struct unwind *u);
/*
 * Fills pcs with the leaf program counter and the return addresses, innermost first. Returns how
 * many (1 at least, max at most). sps: each frame's stack pointer, for unwind_warm(); NULL: not wanted. *cut: the outermost frame was not reached.
 */
size_t unwind_walk(struct unwind *u, const struct cfi_memory *mem, const struct unwind_regs *regs,
                   uint64_t *pcs, uint64_t *sps, size_t max, int *cut);
/* Prefetches what a walk along these n frames will read. Never faults, whatever they are. Async-signal-safe. */
void unwind_warm(const struct unwind *u, const uint64_t *pcs, const uint64_t *sps, size_t n);

#endif
