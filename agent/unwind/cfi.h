/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi.h - reads call frame information (.eh_frame) of x86-64: finds the rule that leads from a frame to
 * its caller's. Reads through a callback, so that a module that is unloaded meanwhile causes an error and no
 * fault; allocates nothing, takes no lock: async-signal-safe. A rule packs into one word, so that a lock-free table can keep it (rules.h).
 */
#ifndef PROBING_AGENT_CFI_H
#define PROBING_AGENT_CFI_H

#include "agent/unwind/cfi_rule.h"

/*
 * Finds the rule for `pc` in the module whose .eh_frame_hdr is at `hdr`, and the range where it holds. Returns 0; -ENOENT: no entry
 * covers pc; -ENOTSUP: an unknown encoding or expression; -EBADMSG; -EFAULT.
 */
int cfi_find(const struct cfi_memory *mem, uint64_t hdr, uint64_t pc, struct cfi_rule *rule,
             struct cfi_span *span);

/* Packs a rule into 62 bits; returns 0 when it does not fit (or is CFI_NONE). */
uint64_t cfi_pack(const struct cfi_rule *rule);
void cfi_unpack(uint64_t word, struct cfi_rule *rule);

#endif
