/* SPDX-License-Identifier: Apache-2.0 */
/* resolve_inside.h - the state of a resolver, for resolve.c and resolve_saved.c only; all other files use resolve.h. */
#ifndef PROBING_CONVERTER_RESOLVE_INSIDE_H
#define PROBING_CONVERTER_RESOLVE_INSIDE_H

#include "../traces/merge.h"
#include "resolve.h"

#define RESOLVER_NATIVE (256u << 10) /* maximum number of native addresses that are remembered */

struct place {
    uint64_t stack, pc;
    uint32_t epoch, generation;
};

struct address {
    uint64_t pc; /* address of the call */
    uint32_t generation, pad;
};

/* Sums of this trace's samples by function, in ticks and in ns: `self` with the function innermost, `total` with it anywhere on the stack
 * (counted once in a recursion), `leaf` with it as the innermost Python function. */
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
    struct keys sites; /* key: the stack, with functions_only its functions; for totals[id - 1] */
    uint32_t newest;   /* highest number of a stack so far */
    struct resolver_total *totals;
    size_t totals_cap;
    uint32_t *frames; /* frames of all totals */
    size_t nframes, frames_cap;
    uint32_t *sum_of; /* index by function: sums[n - 1]; 0: none */
    size_t sum_of_cap;
    struct resolver_function *sums;
    size_t nsums, sums_cap;
    /* the frames of one epoch's dictionary, by their ids there; 0: not named yet */
    uint32_t *named, named_epoch;
    size_t named_cap;
    struct keys addresses; /* key: struct address; for at[id - 1] */
    uint32_t nbase;        /* number of the first ones that are stored elsewhere already */
    /* cache of some of them, by a few bits of the address: nearly all recur again and again */
    struct native_seen {
        uint64_t pc;
        uint32_t generation;
        struct merge_native is; /* its frame when it has just one, 0: it has not */
    } * seen;
    unsigned seen_bits, recent_bits; /* the sizes of these caches */
    struct native_at {
        uint32_t first, n; /* range in `known` */
    } * at;
    size_t at_cap;
    struct merge_native *known;
    size_t nknown, known_cap;
    struct
        resolver_recent { /* cache of places, by a few bits: a thread often does the same at several ticks */
        struct place k;
        uint32_t total; /* 0: none */
    } * recent;
    struct merge_python *py;
    struct merge_native *nat;
    uint32_t *out;
    size_t capacity;
    int spent; /* 1: the trace has more items than its length allows */
};

/* resolve.c: makes space for n elements of `size` bytes in *array, the address of a pointer. Returns 0; -1: no memory. */
int resolver_reserve(void *array, size_t *cap, size_t n, size_t size);

#endif
