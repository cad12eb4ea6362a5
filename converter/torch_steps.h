/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_steps.h - the steps of a trace: where each ends, and what its time went to.
 *
 *     torch_steps_event(&s, tid, &event) ...;        // first reading, in each thread's order
 *     torch_steps_ready(&s);
 *     struct torch_step *p = torch_steps_at(&s, ts);  // the step in progress then; NULL: there are none
 *     torch_steps_drop(&s, &kept, n);                // kept: without the first n of s, which are rows and nothing else any more
 *
 * A step ends with its optimizer's step; optimizers that step next, before any forward pass or wait for data, still
 * belong to it. What comes after the last end is a step, too, without an end. Where an optimizer, or the program, counts, what the
 * root's calls counted before was evaluation, but for the last ones if they are the first step's own passes (agent/torch/torch_step.h).
 */
#ifndef PROBING_CONVERTER_TORCH_STEPS_H
#define PROBING_CONVERTER_TORCH_STEPS_H

#include "torch_decode.h"

enum torch_part { TORCH_FORWARD, TORCH_BACKWARD, TORCH_OPTIMIZER, TORCH_DATA, TORCH_PARTS };

/* Beside enum torch_source: it turned out to be a part of the step that comes, whose time it is; its own is nothing. */
enum { TORCH_WITHIN = 15 };

struct torch_step {
    uint64_t number, begin, end; /* monotonic ns; end 0: it has none */
    unsigned
        source; /* enum torch_source, TORCH_WITHIN; TORCH_EVALUATION: no step, number is the next one's */
    int64_t ns[TORCH_PARTS];
    uint64_t count[TORCH_PARTS];
    uint64_t seq; /* rows given out so far */
    uint64_t tid; /* of the thread that counted it, 0: nobody did */
    uint64_t
        told; /* the end that its event had: torch_cuda and torch_memory rows go by it. 0: none */
};

struct torch_steps {
    struct torch_step *s;
    size_t n, cap, memo;
    uint64_t leader; /* tid of the thread that counts, 0: nobody does */
    uint64_t first;  /* the first event of all */
    int grouped;     /* the step that ended last may grow */
    uint64_t before; /* its end before it grew last, 0: it did not */
    uint32_t depth;  /* of optimizer spans after it */
    /* Steps before s[0], of a trace that is gone on with. */
    size_t dropped;
    uint64_t dropped_root; /* 1 + the highest number of those by the root's calls, 0: none */
    uint64_t dropped_end, dropped_number,
        dropped_source; /* the last one's end, and what s[0] has if nobody tells */
    struct torch_first {
        uint64_t number, since,
            until; /* since 0: no other number was told before it; until 0: it goes on */
    } begun;       /* torch_steps_first() of them */
    int missed;    /* what came later says something else of them */
};

/* By the root's calls, as long as nothing else counts. */
static inline int torch_steps_by_root(unsigned source) {
    return source == TORCH_BY_ROOT || source == TORCH_BY_PASS;
}
/* It is a step. */
static inline int torch_steps_is(const struct torch_step *s) {
    return s->source != TORCH_EVALUATION && s->source != TORCH_WITHIN;
}

/* 0 or -ENOMEM. */
int torch_steps_event(struct torch_steps *t, uint64_t tid, const struct torch_item *e);
int torch_steps_ready(struct torch_steps *t);
struct torch_step *torch_steps_at(struct torch_steps *t, uint64_t ts);
/* The first that is a step. There is one when they are ready, and not none. */
struct torch_first torch_steps_first(const struct torch_steps *t);
void torch_steps_drop(const struct torch_steps *t, struct torch_steps *kept, size_t n);
void torch_steps_free(struct torch_steps *t);

#endif
