/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h - training steps: the code that counts steps reports the end of each one here, and the listeners are called.
 *
 *     steps_on_end(variables_at_step);                          // once, at start
 *     steps_ended(&(struct step){.number = n, .begin = t0, .end = t1});    // whoever counts, in the training thread
 *
 * The listeners are called on the training thread, in the order of registration, with or without the GIL (a torch callback may have released
 * it: see PyGILState_Check()). At most STEPS_LISTENERS; a listener is never removed. torch_step.c says what probing.step() means.
 */
#ifndef PROBING_AGENT_STEPS_H
#define PROBING_AGENT_STEPS_H

#include <stdint.h>

#define STEPS_LISTENERS 8

struct step {
    uint64_t number;     /* 0, 1, 2, ... */
    uint64_t begin, end; /* ns of CLOCK_MONOTONIC; begin 0: not known */
    int over;            /* the next call has begun: no assignment follows; 2: by evaluation */
    int anew; /* what was reported before were evaluations or passes of this step, not steps */
};

typedef void steps_fn(const struct step *s);

/* Adds a listener. Returns 0; -ENOSPC; or -EALREADY when it is on the list already. Callable from any thread. */
int steps_on_end(steps_fn *fn);
/* Reports the end of a step: calls all listeners. */
void steps_ended(const struct step *s);
/* Called by probing.step(), with the GIL held; number < 0: the next number. NULL: nothing counts steps. */
extern void (*steps_manual)(int64_t number); /* (a) */
/* Time of the last sign of life (a step, pass, batch or collective began or ended), 0: none; and a function that sets it. Any thread. */
extern uint64_t steps_last_sign; /* (a) */
static inline void steps_alive(uint64_t ts) {
    __atomic_store_n(&steps_last_sign, ts, __ATOMIC_RELAXED);
}
/* Sets whether the step in progress has had a pass with gradients. steps_of_now() returns the step that the program's present values belong to:
 * the step in progress if it had such a pass, else the last one that ended. Any thread. */
void steps_underway(int yes);
uint64_t steps_of_now(void);
/* Called on the training thread when a call of the model or a wait for data begins (1) or ends (0), with or without the GIL. May be NULL. */
extern void (*steps_work)(int begins); /* (a) */
/* Time at which the step in progress began, where evaluation came before it; 0: there was none. */
extern uint64_t steps_begun; /* (a) */
/* Returns the step in progress, for records that carry one: the number after that of the last step that ended, or 0 before. Any thread. */
uint64_t steps_current(void);
/* To be called in a forked child: counting starts again. */
void steps_after_fork(void);

#endif
