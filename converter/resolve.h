/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - from a sample's stack id and program counter to a callsite, for one trace.
 *
 *     struct resolver *rs = resolver_new(reader, epochs, modules, callsites, &opt);
 *     struct resolver_total *t = resolver_stack(rs, epoch, stack, pc, ts);
 *     ... t->site names the merged stack; add the sample up in t ...
 *     for (i = 0; (t = resolver_total(rs, i)); i++) ...     // the stacks that were seen
 *
 * A (epoch, stack, pc) seen before costs one look-up; a new one is decoded, symbolized and merged
 * (traces/merge.h). Return addresses are looked up one byte earlier, at the call. One thread at a time.
 */
#ifndef PROBING_CONVERTER_RESOLVE_H
#define PROBING_CONVERTER_RESOLVE_H

#include "callsites.h"
#include "dict.h"
#include "meta.h"
#include "modules.h"

struct resolver;

struct resolver_options {
    uint64_t eval_start, eval_end; /* the eval loop's addresses, 0 if not known */
    uint64_t cold_start, cold_end; /* and of its part that lies elsewhere */
    struct reader *reader;         /* for reader_allow(): a frame of a distinct stack is an item */
    const struct meta *meta;       /* for qualified names */
};

/* A distinct stack of this trace and what its samples add up to. */
struct resolver_total {
    uint32_t site;    /* 0: nothing could be read or resolved */
    uint64_t samples; /* rows */
    uint64_t count;   /* ticks */
    uint64_t running; /* ticks on a CPU */
    uint64_t cpu_us;
    uint64_t ns, running_ns; /* count x sampling period */
};

struct resolver *resolver_new(struct epochs *es, const struct modules *m, struct callsites *cs,
                              const struct resolver_options *opt);
void resolver_free(struct resolver *rs);
/* NULL: no memory. Valid until the next call. */
struct resolver_total *resolver_stack(struct resolver *rs, uint32_t epoch, uint64_t stack,
                                      uint64_t pc, uint64_t ts);
struct resolver_total *resolver_total(struct resolver *rs, size_t i);

#endif
