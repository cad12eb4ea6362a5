/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h - training steps: who counts them reports their ends here, listeners are called.
 *
 *     steps_on_end(variables_at_step);                          // once, at start
 *     steps_ended(&(struct step){.number = n, .begin = t0, .end = t1});    // whoever counts, in the training thread
 *
 * The functions are called in the thread that trains, with the GIL held or not (a torch callback may have let it go: see PyGILState_Check()), in
 * the order of registration. At most STEPS_LISTENERS; nobody is ever taken off the list. torch_step.c says what probing.step() means.
 */
#ifndef PROBING_AGENT_STEPS_H
#define PROBING_AGENT_STEPS_H

#include <stdint.h>

#define STEPS_LISTENERS 8

struct step {
    uint64_t number;     /* 0, 1, 2, ... */
    uint64_t begin, end; /* ns of CLOCK_MONOTONIC; begin 0: not known */
    int over;            /* told when the next one begins: what it assigns is assigned */
    int anew; /* what was told before it were evaluations or its own passes, and no steps */
};

typedef void steps_fn(const struct step *s);

/* 0 or -ENOSPC; -EALREADY when it is on the list already. Any thread. */
int steps_on_end(steps_fn *fn);
/* Calls all of them. */
void steps_ended(const struct step *s);
/* probing.step(): number < 0: the next one. GIL held. NULL: nobody counts. */
extern void (*steps_manual)(int64_t number); /* (a) */
/* A sign of life: a step, a pass, a batch or a collective begins or ends. And the last one, 0: none. Any thread. */
extern uint64_t steps_last_sign; /* (a) */
static inline void steps_alive(uint64_t ts) {
    __atomic_store_n(&steps_last_sign, ts, __ATOMIC_RELAXED);
}
/* The step in progress has had a pass with gradients. The step that a value belongs to which the program has now: that one, else the
 * last that ended. Any thread. */
void steps_underway(int yes);
uint64_t steps_of_now(void);
/* A model's call or a wait for data begins (1) or ends (0) in the thread that trains, GIL held or not: who wants to know; NULL. */
extern void (*steps_work)(int begins); /* (a) */
/* When the step in progress began, where what came before it was evaluation; 0: that was never so. */
extern uint64_t steps_begun; /* (a) */
/* The step in progress, for records that carry one: the number after the last one that ended; 0 before. Any thread. */
uint64_t steps_current(void);
/* In a forked child: counting starts again. */
void steps_after_fork(void);

#endif
