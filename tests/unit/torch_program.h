/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_program.h - a random program that trains with PyTorch: what its threads do as torch_calls records, as the agent writes them.
 *
 *     static void program_emit(unsigned record, const struct writer_value *v) ...   // the includer has these: it writes a record,
 *     static void program_drain(void) ...                                           // what there is, into a block,
 *     static void program_turn(void) ...                                            // and does what it tests, now and then
 *     program_start(seed, late); program_names(); train(&g.t[LEADER], 60, TORCH_BY_OPTIMIZER); program_end();
 */
#ifndef PROBING_TESTS_TORCH_PROGRAM_H
#define PROBING_TESTS_TORCH_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "synthetic.h"
#include "traces/torch_events.h"
#include "traces/varint.h"

#define SECOND 1000000000ull

static void program_emit(unsigned record, const struct writer_value *v);
static void program_drain(void);
static void program_turn(void);

/* What a thread has open, and which of its events are not written yet, as the agent keeps them. */
struct running {
    uint64_t tid, next, last, begin, begin_call, begin_step;
    struct {
        unsigned kind;
        uint64_t arg, call, tid, ts;
    } open[64];
    unsigned n;
    uint8_t bytes[4096], *p;
};

enum { LEADER, ENGINE, OTHER, THREADS };

static struct program {
    struct writer *w; /* for the user */
    struct running t[THREADS];
    uint64_t now, seed, number;
    unsigned late;   /* its other threads write one time in so many events */
    unsigned states; /* for the user */
    /* 1: no evaluation and no step goes on after its end (TORCH_GOES_ON, a second optimizer), and only one thread makes forward calls */
    int apart;
} g;

static unsigned any(unsigned n) {
    g.seed = g.seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(g.seed >> 33) % n;
}

static void write_out(struct running *t) {
    if (!t->p)
        return;
    struct writer_value v[TRACE_torch_calls_NFIELDS] = {synthetic_u(t->begin), synthetic_u(t->tid),
                                                        synthetic_u(t->begin_call),
                                                        synthetic_u(t->begin_step)};
    v[TRACE_torch_calls_events] =
        (struct writer_value){.p = t->bytes, .n = (size_t)(t->p - t->bytes)};
    program_emit(TRACE_torch_calls, v);
    t->p = NULL;
}

static void event(struct running *t, unsigned kind, uint64_t arg, uint64_t a, uint64_t b) {
    g.now += 1 + any(SECOND / 2);
    if (!t->p) {
        t->p = t->bytes;
        t->begin = t->last = g.now;
        t->begin_call = t->next;
        t->begin_step = g.number;
        for (unsigned i = 0; i < t->n; i++) {
            t->p = varint_put(t->p, TORCH_OPEN | t->open[i].kind << 4);
            t->p = varint_put(t->p, g.now - t->open[i].ts);
            t->p = varint_put(t->p, t->open[i].arg);
            t->p = varint_put(t->p, t->open[i].call);
            t->p = varint_put(t->p, t->open[i].tid);
        }
    }
    t->p = varint_put(varint_put(t->p, kind | arg << 4), g.now - t->last);
    t->last = g.now;
    if (kind == TORCH_BACK || kind == TORCH_BACK_AT || kind == TORCH_STEP)
        t->p = varint_put(t->p, a);
    if (kind == TORCH_BACK_AT || kind == TORCH_STEP)
        t->p = varint_put(t->p, b);
    if (kind == TORCH_EXIT) {
        t->n--;
    } else if (kind != TORCH_STEP) {
        t->open[t->n].kind = kind;
        t->open[t->n].arg = arg;
        t->open[t->n].ts = g.now;
        t->open[t->n].tid = kind == TORCH_BACK_AT ? a : 0;
        t->open[t->n++].call = kind == TORCH_BACK_AT ? b
                               : kind == TORCH_BACK  ? t->next - a
                               : kind == TORCH_SPAN  ? 0
                                                     : t->next++;
    }
    if (any(t == g.t ? 8 : g.late) == 0 || t->p - t->bytes > 3000)
        write_out(t);
    if (any(24) == 0)
        program_drain();
    if (any(70) == 0)
        program_turn();
}

static void ends(struct running *t) {
    event(t, TORCH_EXIT, any(9) == 0 ? TORCH_FAILED : 0, 0, 0);
}

/* A call of a module, with other calls in it. */
static void forward(struct running *t, unsigned depth) {
    event(t, TORCH_ENTER, 1 + depth * 2 + any(2), 0, 0);
    for (unsigned n = depth < 3 ? any(3) : 0; n > 0; n--)
        forward(t, depth + 1);
    ends(t);
}

/* Runs on this thread, or on one of the engine's, which learns that the pass is over only when the next one begins. */
static void backward(struct running *t) {
    struct running *on = any(2) ? t : &g.t[ENGINE];
    event(t, TORCH_SPAN, TORCH_SPAN_BACKWARD, 0, 0);
    while (on != t && on->n)
        ends(on);
    for (unsigned n = any(5); n > 0 && t->next > 9; n--) {
        unsigned name = 1 + any(6), back = 1 + any(8);
        if (on == t)
            event(on, TORCH_BACK, name, back, 0);
        else
            event(on, TORCH_BACK_AT, name, t->tid, t->next - back);
        if (on == t || n > 1)
            ends(on);
    }
    ends(t);
}

static void optimizer(struct running *t) {
    event(t, TORCH_SPAN, TORCH_SPAN_OPTIMIZER, 0, 0);
    ends(t);
}

static void counted(struct running *t, enum torch_source source) {
    event(t, TORCH_STEP, source, g.number, any(2) ? 0 : any(SECOND / 1000));
    if (source == TORCH_EVALUATION || source == TORCH_GOES_ON)
        return;
    struct writer_value v[TRACE_memory_step_NFIELDS] = {synthetic_u(g.now), synthetic_u(g.number),
                                                        synthetic_u(1 << 20), synthetic_u(2 << 20)};
    v[TRACE_memory_step_gpu_allocated].i = v[TRACE_memory_step_gpu_reserved].i = -1;
    program_emit(TRACE_memory_step, v);
    g.number++;
}

static void others(void) {
    if (!g.apart && any(2))
        forward(&g.t[OTHER], 1);
}

/* source: what counts the steps. */
static void train(struct running *t, unsigned steps, enum torch_source source) {
    for (unsigned i = 0; i < steps; i++) {
        if (any(2)) {
            event(t, TORCH_SPAN, TORCH_SPAN_DATA, 0, 0);
            ends(t);
        }
        forward(t, 0);
        others();
        if (source != TORCH_BY_OPTIMIZER) {
            counted(t, source);
            continue;
        }
        backward(t);
        optimizer(t);
        others();
        counted(t, TORCH_BY_OPTIMIZER);
        if (!g.apart &&
            any(4) == 0) { /* another one, which belongs to it, or ended one of its own */
            optimizer(t);
            if (any(2))
                counted(t, TORCH_BY_OPTIMIZER);
        }
        if (any(9) == 0) {
            forward(t, 0);
            forward(t, 0);
            counted(t, TORCH_EVALUATION);
            for (forward(t, 0); !g.apart && any(2); forward(t, 0))
                counted(t, TORCH_GOES_ON);
        }
    }
}

static void program_start(unsigned seed, unsigned late) {
    struct program fresh = {.seed = seed, .late = late, .now = SYNTHETIC_MONO};

    g = fresh;
    for (unsigned i = 0; i < THREADS; i++) {
        g.t[i].tid = SYNTHETIC_TID + i;
        g.t[i].next = 1;
    }
}

static void program_names(void) {
    for (unsigned i = 1; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "Net.%u", i);
        struct writer_value v[TRACE_torch_name_NFIELDS] = {{.u = 0}};
        v[TRACE_torch_name_key] = v[TRACE_torch_name_number] = synthetic_u(i);
        v[TRACE_torch_name_name] = synthetic_s(name);
        v[TRACE_torch_name_type] = synthetic_s("Block");
        v[TRACE_torch_name_model] = synthetic_u(i < 6);
        program_emit(TRACE_torch_name, v);
    }
}

static void program_end(void) {
    for (unsigned i = 0; i < THREADS; i++)
        write_out(&g.t[i]);
}

#endif
