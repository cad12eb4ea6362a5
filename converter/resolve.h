/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - from a sample's stack id and program counter to a merged stack, for one trace.
 *
 *     struct resolver *rs = resolver_new(epochs, modules, callsites, stacks, &opt);
 *     struct resolver_total *t = resolver_stack(rs, epoch, stack, pc, ts, &missing);
 *     ... t->site names the merged stack; add the sample up in t ...
 *     resolver_end(rs);                                      // the sums become rows
 *
 * A (epoch, stack, pc) seen before costs one look-up; a new one is decoded, symbolized and merged
 * (traces/merge.h); frames and addresses are named once for all stacks. Return addresses are looked up one byte earlier, at the
 * call. Memory is bounded: after RESOLVER_STACKS distinct stacks, or RESOLVER_FRAMES frames of them, their sums are handed on (queue.h) and
 * forgotten, and what comes again is resolved again. One thread at a time.
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
    uint64_t eval_start, eval_end; /* the eval loop's addresses, 0 if not known */
    uint64_t cold_start, cold_end; /* and of its part that lies elsewhere */
    struct reader *reader;         /* for reader_allow(): a frame of a distinct stack is an item */
    const struct meta *meta;       /* for qualified names */
    const struct recorded *recorded; /* the trace's own symbols */
    uint32_t trace;                  /* its id, in the sums */
    int sums;                        /* somebody will ask for them */
    int no_native; /* native frames are left out; a stack of nothing else has one, "[native]" */
    int functions_only; /* nobody asks for stacks, only for what they add up to by function: they get no numbers */
    int no_stacks; /* nobody asks for them: all samples have one without frames */
};

/* A distinct stack of this trace and what its samples add up to. */
struct resolver_total {
    uint32_t site;    /* its number in table stack; 0: it has no frames */
    uint32_t n, leaf; /* frames, as stackset_put() left them */
    size_t frames;    /* see resolver_frames() */
    uint64_t samples; /* rows */
    uint64_t count;   /* ticks */
    uint64_t running; /* ticks on a CPU */
    uint64_t cpu_us;
    uint64_t ns, running_ns; /* count x sampling period */
};

/* stacks NULL: stacks are callsites of cs, and no sums are made. */
struct resolver *resolver_new(struct epochs *es, const struct modules *m, struct callsites *cs,
                              struct stackset *stacks, const struct resolver_options *opt);
void resolver_free(struct resolver *rs);
/* NULL: no memory. Valid until the next call. *missing, unless it is NULL: whether the trace lacks the stack's definition (one that is
 * there may have no frames either: all were the agent's own). */
struct resolver_total *resolver_stack(struct resolver *rs, uint32_t epoch, uint64_t stack,
                                      uint64_t pc, uint64_t ts, int *missing);
/* The t->n frames of a stack, innermost first, marked as stackset_put() does. Valid until the next call. */
const uint32_t *resolver_frames(const struct resolver *rs, const struct resolver_total *t);
/* The last sample has come: what all add up to, by stack and by function, goes to the queue of `stacks`. 0 or -ENOMEM. */
int resolver_end(struct resolver *rs);
/*
 * The native addresses that were named, for another conversion of this trace whose callsites have the same numbers: no file is opened for them
 * again. malloc; NULL: no memory. resolver_restore() takes what makes sense of it: 0 or -ENOMEM. Its first `base` bytes are kept elsewhere: unless
 * `all`, resolver_save() gives what came besides. resolver_has_base(): that is little of it.
 */
void *resolver_save(const struct resolver *rs, int all, size_t *n);
int resolver_has_base(const struct resolver *rs);
void resolver_saved(struct resolver *rs); /* now all are kept elsewhere */
int resolver_restore(struct resolver *rs, const void *saved, size_t n, size_t base);

#endif
