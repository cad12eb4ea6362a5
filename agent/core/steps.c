/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/steps.h"

#include "writer/writer.h"

static steps_fn *listeners[STEPS_LISTENERS]; /* (a) */
static struct {
    uint64_t current; /* (a) */
    int underway;     /* (a) */
} steps;

int steps_on_end(steps_fn *fn) {
    for (int i = 0; i < STEPS_LISTENERS; i++) {
        steps_fn *there = sys_swap(&listeners[i], NULL, fn);
        if (!there || there == fn)
            return there ? -EALREADY : 0;
    }
    return -ENOSPC;
}

void steps_ended(const struct step *s) {
    __atomic_store_n(&steps.current, s->number + 1, __ATOMIC_RELAXED);
    steps_alive(s->end);
    steps_underway(0);
    for (int i = 0; i < STEPS_LISTENERS; i++) {
        steps_fn *fn = __atomic_load_n(&listeners[i], __ATOMIC_ACQUIRE);
        if (!fn)
            break;
        fn(s);
    }
}

uint64_t steps_last_sign, steps_begun;
void (*steps_work)(int begins);
void (*steps_manual)(int64_t number);

void steps_underway(int yes) {
    __atomic_store_n(&steps.underway, yes, __ATOMIC_RELAXED);
}

uint64_t steps_of_now(void) {
    uint64_t now = steps_current();
    return now && !__atomic_load_n(&steps.underway, __ATOMIC_RELAXED) ? now - 1 : now;
}

uint64_t steps_current(void) {
    return __atomic_load_n(&steps.current, __ATOMIC_RELAXED);
}

void steps_after_fork(void) {
    memset(&steps, 0, sizeof steps);
    steps_last_sign = steps_begun = 0;
}
