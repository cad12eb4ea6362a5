/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind.h - native return addresses of a thread, from its registers and its stack.
 *
 * Our own walk over call frame information, in place of libunwind's: it takes no lock (libunwind's walk takes the loader's lock, which
 * the interrupted thread may hold), touches no thread-local storage, cannot fault (all reads go through a callback), and serves a
 * sleeping thread, read from outside, as well as the running one that reads itself. A frame costs a table look-up and two or three
 * loads once its program counter has been seen.
 *
 *     struct unwind u;                        // large; all zeros at first
 *     modmap_refresh(&u.map);                 // sampler thread: follows dlopen and dlclose
 *     n = unwind_walk(&u, &mem, &regs, NULL, pcs, max, &cut);   // any thread, async-signal-safe
 *
 * What has no call frame information (code that a program generated, some hand-written assembler) ends
 * the walk: there `cut` is set. Nothing is guessed.
 */
#ifndef PROBING_AGENT_UNWIND_H
#define PROBING_AGENT_UNWIND_H

#include "agent/unwind/cfi.h"
#include "agent/unwind/modmap.h"
#include "agent/unwind/rules.h"

struct unwind {
    struct modmap map;
    struct rules rules;
};

/* Which registers are known: of a sleeping thread only pc and sp are. */
enum { UNWIND_BP = 1, UNWIND_BX = 2, UNWIND_R10 = 4 };
struct unwind_regs {
    uint64_t pc, sp, bp, bx, r10;
    unsigned known;
};

/*
 * The frames of a thread's last walk, which make its next one cheaper: most of a stack is the same a millisecond later. Each
 * frame was found from one or two words of the stack. Where the new walk reaches a frame of the last one, these words are
 * compared: as long as they are equal, the next frame is the same as last time and needs no look-up of unwind rules; from the
 * first difference on, rules are looked up again. The result is that of a walk without it. All zeros: no walk yet. One reader
 * at a time; call unwind_forget() before using it with another struct unwind.
 */
#define UNWIND_MEMO 512u /* frames that are kept */
struct unwind_frame {
    uint64_t pc, sp;
    uint64_t base; /* what rbp or rbx held, where the step outwards took it */
    /* Where the values of rbp and rbx for this frame were saved, in bytes below sp; 0: nowhere, they are still in the
     * register. The lower bits of bp_down: see unwind.c. */
    uint32_t bp_down, bx_down;
};
struct unwind_memo {
    uint32_t n, now; /* frames; which of the two arrays they are in */
    uint64_t generation;
    int cut;
    struct unwind_frame frame[2][UNWIND_MEMO];
};

static inline void unwind_forget(struct unwind_memo *memo) {
    memo->n = 0;
}

void unwind_free(struct unwind *u);
/*
 * Fills pcs with the leaf program counter and the return addresses, innermost first. Returns how
 * many (1 at least, max at most). memo: may be NULL. *cut: the outermost frame was not reached.
 */
size_t unwind_walk(struct unwind *u, const struct cfi_memory *mem, const struct unwind_regs *regs,
                   struct unwind_memo *memo, uint64_t *pcs, size_t max, int *cut);
/* Prefetches what a walk along the frames in the memo will read. Never faults, whatever they are. Async-signal-safe. */
void unwind_warm(const struct unwind *u, const struct unwind_memo *memo);

#endif
