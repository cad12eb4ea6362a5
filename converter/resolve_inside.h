/* SPDX-License-Identifier: Apache-2.0 */
/* resolve_inside.h - a resolver's state, for resolve.c and resolve_saved.c alone; everybody else uses resolve.h. */
#ifndef PROBING_CONVERTER_RESOLVE_INSIDE_H
#define PROBING_CONVERTER_RESOLVE_INSIDE_H

#include "../traces/merge.h"
#include "resolve.h"

#define RESOLVER_NATIVE (256u << 10) /* native addresses that are remembered at a time */

struct place {
    uint64_t stack, pc;
    uint32_t epoch, generation;
};

struct address {
    uint64_t pc; /* where the call is */
    uint32_t generation, pad;
};

/* What the samples of this trace add up to by function: `self` with it innermost, `total` with it anywhere (once, in a recursion),
 * `leaf` with it as the innermost Python function. Ticks, and ns of them. */
struct resolver_function {
    uint32_t function;
    int64_t self, self_ns, running, running_ns, cpu_us;
    int64_t total, total_ns, total_running_ns;
    int64_t leaf, leaf_ns, leaf_running_ns;
};

struct resolver {
    struct epochs *es;
    const struct modules *m;
    struct callsites *cs;
    struct stackset *stacks;
    struct resolver_options opt;
    struct keys places; /* struct place -> place_total[id - 1] */
    uint32_t *place_total;
    size_t places_cap;
    struct keys sites; /* stack, functions_only: its functions -> totals[id - 1] */
    uint32_t newest;   /* the highest number of a stack so far */
    struct resolver_total *totals;
    size_t totals_cap;
    uint32_t *frames; /* of the totals */
    size_t nframes, frames_cap;
    uint32_t *sum_of; /* by function: sums[n - 1], 0: none */
    size_t sum_of_cap;
    struct resolver_function *sums;
    size_t nsums, sums_cap;
    /* frames of the dictionary of one epoch by their ids there, 0: not named yet */
    uint32_t *named, named_epoch;
    size_t named_cap;
    struct keys addresses; /* struct address -> at[id - 1] */
    uint32_t nbase;        /* the first of them, that are kept elsewhere already */
    struct native_seen { /* some of them, by a few bits: nearly all are asked for again and again */
        uint64_t pc;
        uint32_t generation;
        struct merge_native is; /* its only frame, 0: none */
    } * seen;
    struct native_at {
        uint32_t first, n; /* in known */
    } * at;
    size_t at_cap;
    struct merge_native *known;
    size_t nknown, known_cap;
    struct
        resolver_recent { /* places, by a few bits: a thread often does the same at several ticks */
        struct place k;
        uint32_t total; /* 0: none */
    } * recent;
    struct merge_python *py;
    struct merge_native *nat;
    uint32_t *out;
    size_t capacity;
    int spent; /* the trace has said more than its length allows */
};

/* resolve.c: space for n elements of `size` bytes in *array, the address of a pointer. 0; -1: no memory. */
int resolver_reserve(void *array, size_t *cap, size_t n, size_t size);

#endif
