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
 * Any thread, any signal context; nothing is allocated after rules_init(). Writers do not wait for each other: an
 * entry that two have written at a time matches nobody.
 */
#ifndef PROBING_AGENT_RULES_H
#define PROBING_AGENT_RULES_H

#include <stdint.h>

#include "agent/unwind/cfi.h"

#define RULES_PCS   (1u << 13) /* 128 KiB */
#define RULES_SPANS (1u << 12) /* 128 KiB */

struct rules {
    struct rules_pc *pcs;
    struct rules_span *spans;
};

/* 0 or -ENOMEM. */
int rules_init(struct rules *r);
void rules_free(struct rules *r);
/* 1: *rule is pc's; 0: not known. */
int rules_get(const struct rules *r, uint32_t generation, uint64_t pc, int leaf,
              struct cfi_rule *rule);
/* pc lies in *span, for all of which the rule holds. */
void rules_put(struct rules *r, uint32_t generation, uint64_t pc, int leaf,
               const struct cfi_rule *rule, const struct cfi_span *span);
/* Prefetches the place of a return address. */
void rules_warm(const struct rules *r, uint32_t generation, uint64_t pc);

#endif
