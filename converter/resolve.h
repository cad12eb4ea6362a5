/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - turns a sample's stack id and program counter into a merged stack, for one trace.
 *
 *     struct resolver *rs = resolver_new(epochs, modules, callsites, stacks, &opt);
 *     struct resolver_total *t = resolver_stack(rs, epoch, stack, pc, ts, &missing);
 *     ... t->site is the merged stack; add the sample to the sums in t ...
 *     resolver_end(rs);                                      // turns the sums into rows
 *
 * A combination (epoch, stack, pc) that was seen before costs one look-up; a new one is decoded, symbolized and merged (traces/merge.h),
 * where each frame and address is named only once for all stacks. Return addresses are looked up one byte earlier, at the call. Memory is
 * bounded: after RESOLVER_STACKS distinct stacks, or RESOLVER_FRAMES frames in them, their sums are handed on (queue.h) and forgotten, and
 * a stack that recurs is resolved again. One thread at a time.
 */
#ifndef PROBING_CONVERTER_RESOLVE_H
#define PROBING_CONVERTER_RESOLVE_H

#include "callsites.h"
#include "dict.h"
#include "meta.h"
#include "modules.h"
#include "stackset.h"

#define RESOLVER_FRAMES (1u << 20)
#define RESOLVER_STACKS (16u << 10)

struct resolver;

struct resolver_options {
    uint64_t eval_start, eval_end; /* addresses of the eval loop, 0 when not known */
    uint64_t cold_start, cold_end; /* the same of the part that the compiler put elsewhere */
    /* for reader_allow(): each frame of a distinct stack is an item */
    struct reader *reader;
    const struct meta *meta;         /* for qualified names */
    const struct recorded *recorded; /* the trace's own symbols */
    uint32_t trace;                  /* id of the trace, for the sums */
    int sums;                        /* somebody will ask for the sums */
    /* leave out native frames; a stack of only native frames gets a single one, "[native]" */
    int no_native;
    int functions_only; /* nobody asks for stacks, only for sums by function: stacks get no numbers */
    int few; /* only few samples will come: large caches would take longer to clear than they save */
    int no_stacks; /* nobody asks for stacks: all samples get one without frames */
};

/* A distinct stack of this trace, and the sums of its samples. */
struct resolver_total {
    uint32_t site;    /* its number in table stack; 0: it has no frames */
    uint32_t n, leaf; /* number of frames, and depth of the leaf as stackset_put() sets it */
    size_t frames;    /* see resolver_frames() */
    uint64_t samples; /* rows */
    uint64_t count;   /* ticks */
    uint64_t running; /* ticks on a CPU */
    uint64_t cpu_us;
    uint64_t ns, running_ns; /* count x sampling period */
};

/* With stacks NULL, stacks are callsites of cs and no sums are made. */
struct resolver *resolver_new(struct epochs *es, const struct modules *m, struct callsites *cs,
                              struct stackset *stacks, const struct resolver_options *opt);
void resolver_free(struct resolver *rs);
/* Returns NULL when there is no memory; valid until the next call. *missing (`missing` may be NULL) is set to whether the trace lacks the
 * definition of the stack. (A stack that is defined may have no frames either: when all of them were the agent's own.) */
struct resolver_total *resolver_stack(struct resolver *rs, uint32_t epoch, uint64_t stack,
                                      uint64_t pc, uint64_t ts, int *missing);
/* Returns the t->n frames of a stack, innermost first, marked as by stackset_put(). Valid until the next call. */
const uint32_t *resolver_frames(const struct resolver *rs, const struct resolver_total *t);
/* Call after the last sample: passes the sums by stack and by function to the queue of `stacks`. Returns 0 or -ENOMEM. */
int resolver_end(struct resolver *rs);
/*
 * resolver_save() returns the native addresses that were named, for another conversion of this trace whose callsites have the same numbers,
 * so that no file is opened for them again. The result is malloc'ed; NULL: no memory. resolver_restore() takes the valid parts of it and
 * returns 0 or -ENOMEM. The first `base` bytes of what it is given are stored elsewhere: unless `all` is set, resolver_save() returns only
 * what was added to them. resolver_has_base() tells whether only little was added to them.
 */
void *resolver_save(const struct resolver *rs, int all, size_t *n);
int resolver_has_base(const struct resolver *rs);
void resolver_saved(struct resolver *rs); /* From now on all count as stored elsewhere. */
int resolver_restore(struct resolver *rs, const void *saved, size_t n, size_t base);

#endif
