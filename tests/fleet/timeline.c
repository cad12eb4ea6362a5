/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates synchronous training, rank by rank and collective by collective. Each rank has a time of its own, which its work advances. A
 * collective sets the times of its group to that of the last rank that came, plus what the network takes, with another jitter for each.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fleet.h"

#define LATENCY 200000  /* ns that a collective takes once all are there */
#define NOTICED 2000000 /* ns until a connection that broke is an exception */

struct job {
    unsigned run, first, n;
    int64_t start, stop;
    struct story *story;
    int64_t *now;     /* of each rank; NEVER: it hangs, or is gone */
    int64_t *gone;    /* when it died or failed; NEVER */
    uint32_t *seq[5]; /* by group and rank */
    int64_t *enter;   /* of a group's members */
    uint32_t step;
    int err;
};

int has_group(enum group g) {
    return g == WORLD || (g == TP && opt.tp > 1) || (g == PP && opt.pp > 1) ||
           (g == DP && opt.tp * opt.pp > 1);
}

static unsigned dp(void) {
    return opt.ranks / (opt.tp * opt.pp);
}

unsigned size_of_group(enum group g) {
    return g == WORLD ? opt.ranks : g == TP ? opt.tp : g == PP ? opt.pp : dp();
}

unsigned place_in(enum group g, unsigned r) {
    return g == WORLD ? r
           : g == TP  ? r % opt.tp
           : g == PP  ? r / (opt.tp * dp())
                      : r / opt.tp % dp();
}

unsigned member_of(enum group g, unsigned r, unsigned k) {
    unsigned place = place_in(g, r);

    return g == WORLD ? k : r + (k - place) * (g == TP ? 1 : g == DP ? opt.tp : opt.tp * dp());
}

unsigned index_of_group(enum group g, unsigned r) {
    return g == WORLD ? 0
           : g == TP  ? r / opt.tp
           : g == PP  ? r % (opt.tp * dp())
                      : r / (opt.tp * dp()) * opt.tp + r % opt.tp;
}

static void push(struct job *j, unsigned r, struct span_of s) {
    if (r < j->first || r >= j->first + j->n)
        return;
    struct story *y = &j->story[r - j->first];
    if (s.begin < y->begin)
        return; /* not recorded yet */
    if (y->n == y->cap) {
        size_t cap = y->cap ? y->cap * 2 : 256;
        struct span_of *p = realloc(y->span, cap * sizeof *p);
        if (!p) {
            j->err = -ENOMEM;
            return;
        }
        y->span = p;
        y->cap = cap;
    }
    s.step = j->step;
    y->span[y->n++] = s;
}

static struct story *story(struct job *j, unsigned r) {
    return r >= j->first && r < j->first + j->n ? &j->story[r - j->first] : NULL;
}

/* Returns when this rank is killed, in this run. */
static int64_t killed_at(const struct job *j, unsigned r) {
    return (int)r == opt.kill && j->run == 0 ? (int64_t)(opt.kill_at * 1e9) : NEVER;
}

/* Lets the rank die at the end of what it has done so far. */
static void die(struct job *j, unsigned r, int64_t at) {
    struct story *y = story(j, r);

    j->now[r] = NEVER;
    j->gone[r] = at + (opt.raises ? SECOND : 0);
    if (y && opt.raises) {
        y->failed = at;
        y->exception = "ValueError: bad batch";
        y->end = j->gone[r];
        y->reason = "exit";
    } else if (y) {
        y->end = at;
        y->reason = "killed";
        y->signal = 9;
    }
}

#define FORWARD_PART 0.3 /* of a step's work: its forward passes together */

static void work(struct job *j, unsigned r, enum phase phase, double part) {
    double ns = opt.step_ms * 1e6 * part *
                (1 + 0.02 * normal(FOR_COMPUTE, r, j->step, phase + 16 * j->run));

    if (j->now[r] == NEVER)
        return;
    if (opt.straggler >= 0 && r - (unsigned)opt.straggler < opt.stragglers &&
        phase == (opt.slow_data ? DATA_WAIT : FORWARD))
        ns += opt.straggler_ms * 1e6 * (opt.slow_data ? 1 : part / FORWARD_PART * opt.pp);
    int64_t end = node_work(node_of(r), j->now[r], (int64_t)ns), kill = killed_at(j, r);
    if (end >= kill) {
        push(j, r, (struct span_of){.begin = j->now[r], .end = NEVER, .phase = phase});
        die(j, r, kill > j->now[r] ? kill : j->now[r]);
        return;
    }
    push(j, r, (struct span_of){.begin = j->now[r], .end = end, .phase = phase});
    j->now[r] = end;
}

static int64_t jitter(const struct job *j, unsigned r, unsigned what) {
    double us = opt.jitter_us *
                exp(opt.sigma * normal(FOR_JITTER, r, (uint64_t)j->step << 16 | what, j->run));

    if (uniform(FOR_OUTLIER, r, (uint64_t)j->step << 16 | what, j->run) < opt.outliers)
        us *= 300; /* a packet sent again, a thread that was not scheduled */
    return (int64_t)(us * 1000);
}

/* Returns how much longer than the way back the way between two machines takes. */
static int64_t uphill(unsigned from, unsigned to) {
    return to > from ? (int64_t)(opt.asymmetry_us * 1e3) * (to - from) : 0;
}

/* A rank that comes to a collective that cannot complete either waits for ever or learns that another one is gone. */
static void wait_in_vain(struct job *j, unsigned r, struct span_of s, int64_t gone) {
    struct story *y = story(j, r);

    if (gone == NEVER) {
        s.end = NEVER;
        s.flags = 1;
        push(j, r, s);
        j->now[r] = NEVER;
        return;
    }
    int64_t at =
        node_awake(node_of(r), (s.begin > gone ? s.begin : gone) + NOTICED + jitter(j, r, 999));
    int told = opt.launcher > 0;
    int64_t end = told ? j->gone[opt.kill] + (int64_t)(opt.launcher * 1e9) : at + SECOND / 2;
    s.end = at < end ? at : NEVER;
    s.flags = at >= end ? 1 : told ? 0 : 4; /* a recent torch raises in wait(), after the call */
    push(j, r, s);
    j->now[r] = NEVER;
    j->gone[r] = end;
    if (y) {
        y->failed = s.end;
        y->exception = "RuntimeError: Connection closed by peer";
        y->end = end;
        y->told = told;
        y->reason = told ? "killed" : "exit";
        y->signal = told ? 15 : 0;
    }
}

/* One collective of rank r0's group. what: distinguishes the collectives of a step. */
static void collective(struct job *j, enum group g, unsigned r0, enum op op, uint32_t bytes,
                       unsigned what) {
    unsigned size = size_of_group(g);
    int64_t last = 0, gone = NEVER;
    int stuck = 0, hung = 0;

    for (unsigned k = 0; k < size; k++) {
        unsigned r = member_of(g, r0, k);
        if ((int)r == opt.hang && j->run == 0 && j->now[r] != NEVER &&
            j->now[r] >= (int64_t)(opt.hang_at * 1e9)) {
            push(j, r, (struct span_of){.begin = j->now[r], .end = NEVER, .phase = DATA_WAIT});
            j->now[r] = NEVER;
        }
        int64_t t = j->now[r];
        if (t == NEVER) {
            stuck = 1;
            hung |= j->gone[r] == NEVER;
            gone = j->gone[r] < gone ? j->gone[r] : gone;
        } else if (t > last)
            last = t;
    }
    int64_t kill = killed_at(j, (unsigned)opt.kill);
    if (!stuck && opt.kill >= 0 && kill != NEVER && last + LATENCY + 10 * SECOND >= kill)
        for (unsigned k = 0; k < size; k++) {
            unsigned r = member_of(g, r0, k);
            if ((int)r == opt.kill && last + LATENCY >= kill) { /* it dies in it */
                die(j, r, kill > j->now[r] ? kill : j->now[r]);
                stuck = 1;
                gone = j->gone[r];
            }
        }
    for (unsigned k = 0; k < size; k++) {
        unsigned r = member_of(g, r0, k);
        if (j->now[r] == NEVER)
            continue;
        struct span_of s = {.begin = j->now[r],
                            .seq = ++j->seq[g][r],
                            .phase = COMM,
                            .op = (uint8_t)op,
                            .group = (uint8_t)g,
                            .src = op == BROADCAST ? 0 : -1,
                            .dst = -1,
                            .bytes = bytes};
        if (stuck) {
            wait_in_vain(j, r, s, hung ? NEVER : gone);
            continue;
        }
        int64_t ready = last;
        if (op == BROADCAST) /* only the root is waited for */
            ready = j->now[member_of(g, r0, 0)] > s.begin ? j->now[member_of(g, r0, 0)] : s.begin;
        int64_t left = node_awake(node_of(r), ready + LATENCY + bytes / 20 + uphill(0, node_of(r)));
        s.end = left + jitter(j, r, what);
        push(j, r, s);
        j->enter[k] = s.end;
    }
    for (unsigned k = 0; k < size && !stuck; k++)
        j->now[member_of(g, r0, k)] = j->enter[k];
}

/* The same for all groups of a kind. stage: the groups of this stage of the pipeline; -1: of all. */
static void collectives(struct job *j, enum group g, int stage, enum op op, uint32_t bytes,
                        unsigned what) {
    if (!has_group(g))
        return;
    for (unsigned r = 0; r < opt.ranks; r++)
        if (place_in(g, r) == 0 && (stage < 0 || place_in(PP, r) == (unsigned)stage))
            collective(j, g, r, op, bytes, what);
}

static void message(struct job *j, unsigned from, unsigned to, uint32_t bytes, unsigned what) {
    struct span_of s = {.phase = COMM,
                        .group = PP,
                        .seq = j->step + 1,
                        .bytes = bytes,
                        .src = (int16_t)place_in(PP, from),
                        .dst = (int16_t)place_in(PP, to)};
    int64_t sent = j->now[from];

    if (sent != NEVER) {
        s.begin = sent;
        s.end = sent + 40000 + jitter(j, from, what + 1);
        s.op = SEND;
        push(j, from, s);
        j->now[from] = s.end;
    }
    if (j->now[to] == NEVER)
        return;
    s.begin = j->now[to];
    s.op = RECV;
    if (sent == NEVER) {
        wait_in_vain(j, to, s, j->gone[from]);
        return;
    }
    int64_t there = sent + LATENCY + bytes / 20 + uphill(node_of(from), node_of(to));
    s.end = node_awake(node_of(to), there > s.begin ? there : s.begin) + jitter(j, to, what);
    push(j, to, s);
    j->now[to] = s.end;
}

static void one_step(struct job *j) {
    enum group gradients = has_group(DP) ? DP : WORLD;
    unsigned per_stage = opt.ranks / opt.pp;
    double share = 1.0 / opt.pp;

    for (unsigned p = 0; p < opt.pp; p++) {
        for (unsigned r = p * per_stage; r < (p + 1) * per_stage; r++) {
            if (p == 0)
                work(j, r, DATA_WAIT, 0.05);
            else
                message(j, r - per_stage, r, 1 << 20, 10);
            work(j, r, FORWARD, FORWARD_PART / 2 * share);
        }
        collectives(j, TP, (int)p, ALL_REDUCE, 1 << 18, 20);
        for (unsigned r = p * per_stage; r < (p + 1) * per_stage; r++)
            work(j, r, FORWARD, FORWARD_PART / 2 * share);
    }
    for (unsigned p = opt.pp; p-- > 0;) {
        for (unsigned r = p * per_stage; r < (p + 1) * per_stage; r++) {
            if (p + 1 < opt.pp)
                message(j, r + per_stage, r, 1 << 20, 30);
            work(j, r, BACKWARD, 0.25 * share);
        }
        collectives(j, TP, (int)p, ALL_REDUCE, 1 << 18, 40);
        for (unsigned r = p * per_stage; r < (p + 1) * per_stage; r++)
            work(j, r, BACKWARD, 0.2 * share);
    }
    collectives(j, gradients, -1, ALL_REDUCE, 25 << 20, 50);
    if (gradients != WORLD && opt.world)
        collectives(j, WORLD, -1, ALL_REDUCE, 4, 60); /* the norm of the gradients */
    for (unsigned r = 0; r < opt.ranks; r++)
        work(j, r, OPTIMIZER, 0.1);
}

static int begin(struct job *j) {
    size_t n = opt.ranks;

    j->now = malloc(n * sizeof *j->now);
    j->gone = malloc(n * sizeof *j->gone);
    j->enter = malloc(n * sizeof *j->enter);
    for (int g = 0; g < 5; g++)
        j->seq[g] = calloc(n, sizeof *j->seq[g]);
    if (!j->now || !j->gone || !j->enter || !j->seq[1] || !j->seq[2] || !j->seq[3] || !j->seq[4])
        return -ENOMEM;
    for (unsigned r = 0; r < opt.ranks; r++) {
        j->now[r] = node_awake(node_of(r),
                               j->start + (int64_t)(2e9 * uniform(FOR_COMPUTE, r, 0, 99 + j->run)));
        j->gone[r] = NEVER;
        struct story *y = story(j, r);
        if (!y)
            continue;
        *y = (struct story){.begin = j->now[r], .end = NEVER, .reason = "exit", .failed = NEVER};
        if ((int)r == opt.late && j->run == 0)
            y->begin = j->start + (int64_t)(opt.late_at * 1e9);
    }
    return 0;
}

int timeline(unsigned run, int64_t start, unsigned first, unsigned n, struct story *s) {
    struct job j = {.run = run, .first = first, .n = n, .start = start, .story = s};
    int any = 1, err = begin(&j);

    j.stop = start + (int64_t)(opt.minutes * 60e9);
    if (!err && opt.world) {
        collectives(&j, WORLD, -1, BARRIER, 0, 1);
        collectives(&j, WORLD, -1, BROADCAST, 1 << 22, 2);
    }
    for (; !err && any; j.step++) {
        int done = 1;
        any = 0;
        for (unsigned r = 0; r < opt.ranks; r++) {
            any |= j.now[r] != NEVER;
            done &= j.now[r] >= j.stop;
        }
        if (done)
            break;
        one_step(&j);
        err = j.err;
    }
    /* At the end the scheduler kills all ranks that still wait. */
    for (unsigned i = 0; !err && i < n; i++) {
        struct story *y = &s[i];
        if (y->end != NEVER)
            continue;
        y->end = j.now[first + i];
        if (y->end == NEVER) {
            y->end = j.stop + 5 * SECOND;
            y->reason = "killed";
            y->signal = 9;
        }
    }
    free(j.now);
    free(j.gone);
    free(j.enter);
    for (int g = 0; g < 5; g++)
        free(j.seq[g]);
    return err;
}
