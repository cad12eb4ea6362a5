/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_state.h - what the loading of torch_calls (load_torch.h) knows at the beginning of a block: with it a trace that has grown is gone on
 * with from that block, and rows of what was before stay as they are.
 *
 *     struct torch_state t = {.base = base};
 *     t.from                                    // the first block that is to be read; 0 at first
 *     torch_state_thread(&t, tid)                // its open calls, made where there are none; NULL: no memory
 *     torch_state_model(&t, name)                // that module is a model. 0 or -ENOMEM
 *     torch_state_sum(&t, name, stage)           // what its calls add up to; NULL: no memory
 *     p = torch_state_save(&t, &point, later, &n)  // to be freed. NULL with n 0: nothing to be kept, with n 1: no memory
 *     err = torch_state_restore(&t, p, n);       // into an empty one. -EBADMSG: it is none
 *     if (torch_state_known(&t)) ...             // once steps are ready: what is there of steps still holds. They take over what was counted
 *     torch_state_free(&t);
 *
 * A step's number, and when it begins, may follow from what comes later: steps.missed, or !torch_state_known(), says that rows would have to
 * change which were written before. Everything is read anew then.
 */
#ifndef PROBING_CONVERTER_TORCH_STATE_H
#define PROBING_CONVERTER_TORCH_STATE_H

#include "keys.h"
#include "torch_steps.h"

#define TORCH_DEPTH 512

/* As torch_call.stage in schema/36_torch.sql. */
enum torch_stage { STAGE_FORWARD, STAGE_BACKWARD, STAGE_PASS, STAGE_OPTIMIZER, STAGE_DATA };

struct torch_interval {
    uint64_t ts;
    int64_t id, parent; /* row ids; parent 0: none */
    uint64_t name, call, tid;
    uint64_t step, seq;
    int64_t inner; /* ns of those that lie in it */
    uint32_t depth;
    int has_step;
    enum torch_stage stage;
    unsigned flags;
    int part; /* enum torch_part whose time it is, -1: that of what it lies in */
};

/* What one thread has open. */
struct torch_open {
    uint64_t tid, next_call;
    struct torch_interval open[TORCH_DEPTH];
    uint32_t n, beyond; /* beyond: deeper than TORCH_DEPTH, not kept */
};

/* What the calls of one module and stage add up to. */
struct torch_sum {
    int64_t calls, timed, ns, self_ns, longest;
};

/* The steps as they were told before a block. */
struct torch_point {
    struct torch_steps
        steps;     /* s: not its own; of it the first n, the last of which ended at `end` then */
    uint64_t from; /* the block */
    uint64_t end, most; /* most: the latest event before it, 0: none */
    uint64_t least;     /* the earliest from it to the next one */
};

/* What was counted for a step. */
struct torch_counted {
    uint64_t number, begin, source, tid;
    int64_t ns[TORCH_PARTS];
    uint64_t count[TORCH_PARTS], seq;
};

struct torch_state {
    int64_t base, begun; /* rows of torch_call begun so far: base + 1 ... base + begun */
    uint64_t from, most; /* most: the latest event of what is not read again */
    uint64_t since;      /* calls that ended before are no rows */
    struct torch_steps steps;
    struct torch_open **threads;
    size_t nthreads;
    uint8_t *models;    /* by name: whether that module is one (torch_name.model) */
    size_t nmodels;     /* 0: an older trace, nobody knows */
    uint64_t names;     /* the highest number of a name */
    uint64_t pass_end;  /* when the last backward pass so far ended */
    struct keys summed; /* name, stage -> sums[id - 1] */
    struct torch_sum *sums;
    size_t sums_cap;
    struct torch_counted *counted; /* of steps from the first on; restored */
    size_t ncounted;
};

struct torch_open *torch_state_thread(struct torch_state *t, uint64_t tid);
int torch_state_model(struct torch_state *t, uint64_t name);
struct torch_sum *torch_state_sum(struct torch_state *t, uint64_t name, unsigned stage);
/* later: the earliest event behind the point. */
uint8_t *torch_state_save(struct torch_state *t, const struct torch_point *p, uint64_t later,
                          size_t *n);
int torch_state_restore(struct torch_state *t, const uint8_t *p, size_t n);
int torch_state_known(struct torch_state *t);
void torch_state_free(struct torch_state *t);

#endif
