/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_state.h - the state of loading torch_calls (load_torch.h) at the beginning of a block. With it the conversion of a trace that has
 * grown is continued from that block, and rows of what came before stay as they are.
 *
 *     struct torch_state t = {.base = base};
 *     t.from                                    // the first block to be read; 0 at first
 *     o = torch_state_thread(&t, tid)            // the open calls of a thread, created if there are none; NULL: no memory
 *     torch_state_room(o)                        // makes room for one more of them. 0 or -ENOMEM
 *     torch_state_none(o)                        // frees that room; call it when no call is open
 *     torch_state_model(&t, name)                // marks the module as a model. 0 or -ENOMEM
 *     torch_state_sum(&t, name, stage)           // the sums of its calls; NULL: no memory
 *     p = torch_state_save(&t, &point, later, &n)  // to be freed. NULL with n 0: nothing to be stored; with n 1: no memory
 *     err = torch_state_restore(&t, p, n);       // into an empty state. -EBADMSG: p is not a saved state
 *     if (torch_state_known(&t)) ...             // once steps are ready: what was saved about steps still holds, and its counts are taken over
 *     torch_state_free(&t);
 *
 * A step's number and begin may depend on events that come later: steps.missed, or !torch_state_known(), means that rows written before
 * would have to change. Then the whole trace is read anew.
 */
#ifndef PROBING_CONVERTER_TORCH_STATE_H
#define PROBING_CONVERTER_TORCH_STATE_H

#include "keys.h"
#include "torch_steps.h"

#define TORCH_DEPTH 512
#define TORCH_NEAR  4096

/* As column stage of table torch_call in schema/36_torch.sql. */
enum torch_stage { STAGE_FORWARD, STAGE_BACKWARD, STAGE_PASS, STAGE_OPTIMIZER, STAGE_DATA };

struct torch_interval {
    uint64_t ts;
    int64_t id, parent; /* row ids; parent 0: none */
    uint64_t name, call, tid;
    uint64_t step, seq;
    int64_t inner; /* ns spent in calls inside it */
    uint32_t depth;
    int has_step;
    enum torch_stage stage;
    unsigned flags;
    int part; /* enum torch_part that its time counts as; -1: that of the interval around it */
};

/* The open calls of one thread. A server may have a thread for each request, millions in all, so one without open calls is small. */
struct torch_open {
    uint64_t tid, next_call;
    struct torch_interval *open;
    uint32_t n, cap,
        beyond; /* beyond: how many are nested deeper than TORCH_DEPTH and not stored */
};

/* The sums of all calls of one module and stage. */
struct torch_sum {
    int64_t calls, timed, ns, self_ns, longest;
};

/* The steps as they were known before a block. */
struct torch_point {
    struct torch_steps
        steps; /* steps.s belongs to somebody else; only its first n count, the last of which then ended at `end` */
    uint64_t from;      /* the block */
    uint64_t end, most; /* most: time of the latest event before the block, 0: none */
    uint64_t least;     /* time of the earliest event from the block to the next point */
};

/* What was counted for one step. */
struct torch_counted {
    uint64_t number, begin, source, tid;
    int64_t ns[TORCH_PARTS];
    uint64_t count[TORCH_PARTS], seq;
};

struct torch_state {
    int64_t base, begun; /* the rows of torch_call begun so far are base + 1 ... base + begun */
    uint64_t from, most; /* most: time of the latest event that is not read again */
    uint64_t since;      /* calls that ended before this time get no rows */
    struct torch_steps steps;
    int follows; /* 1: the trace goes on from an earlier file of its process; not saved */
    struct torch_open **threads; /* each stays where it is */
    size_t nthreads, threads_cap;
    struct keys tids;   /* key: tid; for threads[id - 1] */
    uint8_t *models;    /* indexed by name: whether that module is a model (torch_name.model) */
    size_t nmodels;     /* 0: an older trace, which does not tell */
    uint64_t names;     /* highest number of a name */
    uint64_t pass_end;  /* end of the last backward pass so far */
    struct keys summed; /* key: name, stage; for sums[id - 1] */
    struct torch_sum *sums;
    size_t sums_cap;
    uint32_t near
        [TORCH_NEAR]; /* ids in `summed` of the first names, by 8 * name + stage; 0: look there */
    struct torch_counted *counted; /* restored: of the steps from the first one on */
    size_t ncounted;
};

struct torch_open *torch_state_thread(struct torch_state *t, uint64_t tid);
int torch_state_room(struct torch_open *o);
void torch_state_none(struct torch_open *o);
int torch_state_model(struct torch_state *t, uint64_t name);
struct torch_sum *torch_state_sum(struct torch_state *t, uint64_t name, unsigned stage);
/* later: time of the earliest event after the point. A trace that goes on from an earlier file has no state to be stored before its first step
 * and what that file left open have ended, because rows until then change when the two are joined (torch_ends.h). */
uint8_t *torch_state_save(struct torch_state *t, const struct torch_point *p, uint64_t later,
                          size_t *n);
int torch_state_restore(struct torch_state *t, const uint8_t *p, size_t n);
int torch_state_known(struct torch_state *t);
void torch_state_free(struct torch_state *t);

#endif
