/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - call frame rules that were found before: two lock-free tables.
 *
 *     if (!rules_get(&r, generation, pc, leaf, &rule)) {
 *         cfi_find(mem, hdr, pc, &rule, &span);
 *         rules_put(&r, generation, pc, leaf, &rule, &span);
 *     }
 *
 * One table has return addresses, of which a program has some thousands, each with its rule. The other has pieces of functions,
 * for the innermost frame (`leaf`): it is at any instruction, a loop of numbers has hundreds, mostly one rule covers them all, and
 * in the first table they would take the places of the others.
 * `generation`: of the list of modules; what was put under another one is not found.
 *
 * All zeros at first. Any thread, any signal context; nothing is allocated. Writers do not wait for each other: the words of an entry are
 * written one after the other without a lock, and its tag is made of the others, so that a mixture of two writes matches nobody.
 */
#ifndef PROBING_AGENT_RULES_H
#define PROBING_AGENT_RULES_H

#include "agent/unwind/cfi.h"

#define RULES_PCS   (1u << 13) /* 128 KiB */
#define RULES_SPANS (1u << 12) /* 128 KiB */

/* Aligned, so that the places of a return address, or of a piece of a function, share a cache line. */
struct rules {
    _Alignas(64) struct rules_pc { uint64_t tag, rule; } pcs[RULES_PCS];
    struct rules_span {
        uint64_t tag, rule, lo, hi;
    } spans[RULES_SPANS];
};

/* 1: *rule is pc's; 0: not known. */
int rules_get(const struct rules *r, uint32_t generation, uint64_t pc, int leaf,
              struct cfi_rule *rule);
/* pc lies in *span, for all of which the rule holds. */
void rules_put(struct rules *r, uint32_t generation, uint64_t pc, int leaf,
               const struct cfi_rule *rule, const struct cfi_span *span);
/* Prefetches the place of a return address. */
void rules_warm(const struct rules *r, uint32_t generation, uint64_t pc);

#endif
