/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_step.h"

#include <errno.h>
#include <string.h>

#include "agent/core/steps.h"
#include "agent/torch/torch_cuda.h"

#define MILLION   1000000u
#define BY_HAND   64 /* root calls after a backward pass and without an optimizer: it steps by hand */
#define FORGOTTEN 16 /* other roots' calls after which the first root is not waited for any more */

static struct {
    struct lane *leader;             /* (a) whose thread counts */
    uint32_t root;                   /* serial of the root module whose calls count, 0 */
    uint32_t others;                 /* calls of other roots since its last one */
    uint32_t unclaimed;              /* its calls since a backward pass, without an optimizer */
    int optimizer, manual, backward; /* what was seen */
    int grouped; /* the last optimizer's step ended a step, and no forward pass has begun since */
    int called;  /* the root was called since the last step ended */
    uint64_t number, begin, root_end;
    uint32_t rate, credit;
    int deep; /* the modules of this step are recorded */
} s = {.rate = MILLION, .deep = 1};

static int leads(struct lane *l) {
    struct lane *none = NULL, *leader = __atomic_load_n(&s.leader, __ATOMIC_ACQUIRE);
    if (leader == l)
        return 1;
    if (leader && __atomic_load_n(&leader->taken, __ATOMIC_RELAXED) &&
        leader->generation == l->generation)
        return 0;
    if (leader) /* its thread is gone */
        none = leader;
    return __atomic_compare_exchange_n(&s.leader, &none, l, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void ended(struct lane *l, enum torch_source source, uint64_t end) {
    uint64_t now;
    uint8_t *p = lane_begin(l, &now);
    if (p && now < l->last) /* as lane_head has it: rows are found by `end` */
        now = l->last;
    if (!end || (p && end > now))
        end = p ? now : values_now();
    if (p) {
        p = lane_head(l, p, now, TORCH_STEP, source);
        p = varint_put(p, s.number);
        p = varint_put(p, now > end ? now - end : 0);
        lane_done(l, p);
    }
    struct step done = {s.number, s.begin, end};
    if (__builtin_expect(cuda_on, 0))
        cuda_step(l, s.number, s.begin, end);
    s.number++;
    s.begin = end;
    s.called = 0;
    s.credit += s.rate;
    s.deep = s.credit >= MILLION;
    if (s.deep)
        s.credit -= MILLION;
    steps_ended(&done);
}

int step_root(struct lane *l, uint32_t serial) {
    if (l->passes || !leads(l))
        return s.deep;
    if (l->optimizing) { /* a closure's: this optimizer does not belong to the one before */
        s.grouped = 0;
        return s.deep;
    }
    if (!s.begin)
        s.begin = l->last ? l->last : values_now();
    s.grouped = 0;
    if (s.optimizer || s.manual || !serial)
        return s.deep;
    if (!s.root || s.others >= FORGOTTEN)
        s.root = serial;
    if (serial != s.root) {
        s.others++;
        return s.deep;
    }
    s.others = 0;
    s.unclaimed += s.backward != 0;
    if (s.called && (!s.backward || s.unclaimed > BY_HAND))
        ended(l, TORCH_BY_ROOT, s.backward ? 0 : s.root_end);
    s.called = 1;
    return s.deep;
}

void step_root_done(struct lane *l) {
    if (l == s.leader && !l->passes)
        s.root_end = l->last;
}

void step_backward(void) {
    s.backward = 1;
}

static void optimizer_done(struct lane *l) {
    if (!leads(l) || s.manual)
        return;
    s.optimizer = 1;
    if (!s.grouped)
        ended(l, TORCH_BY_OPTIMIZER, 0);
    s.grouped = 1;
}

/* probing.step() */
static void manual(int64_t number) {
    struct lane *l = lane_here();
    int first = !s.manual;
    if (!l)
        return;
    s.manual = 1;
    if (first && s.grouped) /* the optimizer has ended this one already */
        return;
    if (number >= 0)
        s.number = (uint64_t)number;
    ended(l, TORCH_BY_MARK, 0);
}

/* ---- callbacks: no GIL, any thread ---- */

/*
 * What a start callback gives the end callback: an object whose virtual table has two destructors. Ours are two
 * that stay for ever.
 */
static void nothing(void *self) {
    (void)self;
}
static void *const table[2] = {(void *)nothing, (void *)nothing};
static struct { void *const *table; } optimizer_mark = {table}, loader_mark = {table};

static int begins(const char *s1, const char *head, size_t n) {
    return !strncmp(s1, head, n - 1);
}
#define BEGINS(text, head) begins(text, head, sizeof head)

void *step_begins(const char *name) {
    void *mark = NULL;
    struct lane *l;
    if (name && BEGINS(name, "Optimizer.step#"))
        mark = &optimizer_mark;
    else if (name && BEGINS(name, "enumerate(DataLoader)#"))
        mark = &loader_mark;
    if (mark && (!(l = lane_here()) || l->depth >= LANE_DEPTH - 8))
        mark = NULL;
    if (mark == &optimizer_mark) {
        if (l->optimizing++ == 0)
            l->optimizer_at = lane_enter(l, TORCH_SPAN, TORCH_SPAN_OPTIMIZER);
    } else if (mark) {
        if (l->loading++ == 0)
            l->loading_at = lane_enter(l, TORCH_SPAN, TORCH_SPAN_DATA);
        if (!s.begin && leads(l))
            s.begin = l->last;
    }
    return mark;
}

void step_ends(void *mark) {
    struct lane *l = lane_here();
    if (!l)
        return;
    if (mark == &optimizer_mark && l->optimizing && --l->optimizing == 0) {
        lane_exit(l, l->optimizer_at, 0);
        optimizer_done(l);
    } else if (mark == &loader_mark && l->loading && --l->loading == 0) {
        lane_exit(l, l->loading_at, 0);
    }
}

/* ---- life ---- */

void step_rate(uint32_t millionths) {
    s.rate = millionths;
}

void step_start(void) {
    steps_counter(manual);
}

void step_stop(void) {
    steps_counter(NULL);
}

void step_reset(int count_anew) {
    uint64_t number = count_anew ? 0 : s.number;
    uint32_t rate = s.rate;
    memset(&s, 0, sizeof s);
    s.number = number;
    s.rate = rate;
    s.deep = 1;
}
