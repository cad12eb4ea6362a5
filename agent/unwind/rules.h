/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - caches call frame rules in two lock-free tables.
 *
 *     if (!rules_get(&r, generation, pc, leaf, &rule)) {
 *         cfi_find(mem, hdr, pc, &rule, &span);
 *         rules_put(&r, generation, pc, leaf, &rule, &span);
 *     }
 *
 * One table has the rules of return addresses, of which a program has some thousands. The other has the rules of pieces of functions, for the innermost frame
 * (`leaf`), which may be at any instruction: a numeric loop has hundreds of them, mostly covered by one rule, and in the first table they would evict the
 * others. `generation`: that of the list of modules; rules that were stored under another one are not found.
 *
 * Initially all zeros. Any thread, any signal handler; nothing is allocated. Writers do not wait for each other: the words of an entry are
 * written one after the other without a lock, and its tag is computed from the other words, so that a mixture of two writes matches nothing.
 */
#ifndef PROBING_AGENT_RULES_H
#define PROBING_AGENT_RULES_H

#include "agent/unwind/cfi.h"

#define RULES_PCS   (1u << 13) /* 128 KiB */
#define RULES_SPANS (1u << 12) /* 128 KiB */

/* Aligned, so that all possible places of a return address, or of a piece of a function, share a cache line. */
struct rules {
    _Alignas(64) struct rules_pc { uint64_t tag, rule; } pcs[RULES_PCS];
    struct rules_span {
        uint64_t tag, rule, lo, hi;
    } spans[RULES_SPANS];
};

/* Returns 1 and sets *rule to the rule for pc; 0 when it is not known. */
int rules_get(const struct rules *r, uint32_t generation, uint64_t pc, int leaf,
              struct cfi_rule *rule);
/* Stores the rule for pc. It holds for all of *span, which contains pc. */
void rules_put(struct rules *r, uint32_t generation, uint64_t pc, int leaf,
               const struct cfi_rule *rule, const struct cfi_span *span);
/* Prefetches the place of a return address. */
void rules_warm(const struct rules *r, uint32_t generation, uint64_t pc);

#endif
