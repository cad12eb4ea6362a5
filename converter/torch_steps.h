/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_steps.h - the training steps of a trace: where each one ends, and what its time was spent on.
 *
 *     torch_steps_event(&s, tid, &event) ...;        // first reading, in each thread's order
 *     torch_steps_ready(&s);
 *     struct torch_step *p = torch_steps_at(&s, ts);  // the step in progress at ts; NULL: there are no steps
 *     torch_steps_drop(&s, &kept, n);                // kept: s without its first n steps, which are only needed as rows from now on
 *
 * A step ends with a step of its optimizer; optimizers that step after that, before the next forward pass or wait for data, still belong to
 * it. What follows the last end is a step too, without an end. Once an optimizer or the program itself counts steps, the steps counted
 * before that by calls of the root module were evaluation, except for the last ones if they are the passes of the first step
 * (agent/torch/torch_step.h).
 */
#ifndef PROBING_CONVERTER_TORCH_STEPS_H
#define PROBING_CONVERTER_TORCH_STEPS_H

#include "torch_decode.h"

enum torch_part { TORCH_FORWARD, TORCH_BACKWARD, TORCH_OPTIMIZER, TORCH_DATA, TORCH_PARTS };

/* An additional value of enum torch_source: the interval turned out to be a part of the next step, which its time is added to; its own time
 * counts as nothing. */
enum { TORCH_WITHIN = 15 };

struct torch_step {
    uint64_t number, begin, end; /* monotonic ns; end 0: it has no end */
    unsigned
        source; /* enum torch_source, or TORCH_WITHIN; TORCH_EVALUATION: not a step, and number is that of the next step */
    unsigned
        part; /* how far before it in the array its last part (TORCH_PART) is, or a part's the one before that; 0: it has none */
    int64_t ns[TORCH_PARTS];
    uint64_t count[TORCH_PARTS];
    uint64_t seq; /* number of rows numbered within the step so far */
    uint64_t tid; /* the thread that counted it, 0: none did */
    uint64_t
        told; /* the end that its event had, by which torch_cuda and torch_memory rows refer to it; 0: none */
};

struct torch_steps {
    struct torch_step *s;
    size_t n, cap, memo;
    uint64_t leader; /* tid of the thread that counts the steps, 0: none does */
    uint64_t first;  /* time of the first of all events */
    int grouped;     /* 1: the last ended step may still be extended */
    uint64_t before; /* its end before it was last extended, 0: it was not */
    uint32_t depth;  /* nesting depth of optimizer spans after it */
    /* Steps before s[0], of a trace that is continued. */
    size_t dropped;
    /* 1 + the highest number of the steps counted by calls of the root module, 0: none */
    uint64_t dropped_root;
    uint64_t dropped_end, dropped_number,
        dropped_source; /* end of the last of them; number and source that s[0] gets when no event tells */
    /* With none dropped, dropped_number is the number of the step that was in progress when the trace began, which is not 0 where
     * the trace goes on from an earlier file. */
    struct torch_first {
        uint64_t number, since,
            until; /* since 0: no other number was announced before it; until 0: it has not ended */
    } begun;       /* torch_steps_first() of the dropped steps */
    int missed;    /* 1: later events contradict what was derived for the dropped steps */
};

/* Returns 1 when it was counted by calls of the root module, which holds as long as nothing else counts. */
static inline int torch_steps_by_root(unsigned source) {
    return source == TORCH_BY_ROOT || source == TORCH_BY_PASS;
}
/* Returns 1 for a step, 0 for an evaluation or a part of another step. */
static inline int torch_steps_is(const struct torch_step *s) {
    return s->source != TORCH_EVALUATION && s->source != TORCH_WITHIN && s->source != TORCH_PART;
}
/* Returns the part before a step or part; NULL: it has none. */
static inline const struct torch_step *torch_steps_part(const struct torch_step *s) {
    return s->part ? s - s->part : NULL;
}
/* Returns 1 when the thread's next events tell nothing about steps, up to the next STEP, but for the time of the first of them. */
static inline int torch_steps_waits(const struct torch_steps *t, uint64_t tid) {
    return tid != t->leader || !t->grouped;
}

/* Both return 0 or -ENOMEM. */
int torch_steps_event(struct torch_steps *t, uint64_t tid, const struct torch_item *e);
int torch_steps_ready(struct torch_steps *t);
struct torch_step *torch_steps_at(struct torch_steps *t, uint64_t ts);
/* Returns the first interval that is a step. There is one once torch_steps_ready() has run, unless there are no steps at all. */
struct torch_first torch_steps_first(const struct torch_steps *t);
/* Returns the step with its parts added; what interrupted it is taken from its beginning, so that the duration leads to the end. */
struct torch_step torch_steps_whole(const struct torch_step *s);
/* Returns the index of the step or evaluation that s[0] is, or is a part of. There must be one: torch_steps_ready() has run. */
size_t torch_steps_front(const struct torch_steps *t);
void torch_steps_drop(const struct torch_steps *t, struct torch_steps *kept, size_t n);
void torch_steps_free(struct torch_steps *t);

#endif
