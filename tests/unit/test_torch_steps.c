/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converter/torch_steps.h: steps, evaluations and parts of steps divide the time without gaps, each part belongs to the next step, and a trace that is
 * continued from any of its steps has the same ones from there on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/torch_steps.h"

#define MOST  60
#define BEGIN 1000

static uint64_t seed;

static uint64_t any(uint64_t n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % n;
}

/* What a thread announced: the end of each interval, and what it was. */
static struct told {
    unsigned source;
    uint64_t number, end;
} told[MOST];

static size_t program(void) {
    size_t n = 5 + any(MOST - 5);
    uint64_t number = any(3), ts = BEGIN;

    for (size_t i = 0; i < n; i++) {
        static const unsigned sources[] = {TORCH_BY_OPTIMIZER, TORCH_BY_OPTIMIZER, TORCH_BY_MARK,
                                           TORCH_EVALUATION,   TORCH_PART,         TORCH_PART};
        told[i] = (struct told){sources[any(6)], number, ts += 1 + any(1000)};
        number += told[i].source != TORCH_EVALUATION && told[i].source != TORCH_PART;
    }
    return n;
}

static void announce(struct torch_steps *t, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        uint64_t late =
            any(50); /* it is announced a little later, and then a forward pass begins */
        struct torch_item step = {.kind = TORCH_STEP,
                                  .ts = told[i].end + late,
                                  .arg = told[i].source,
                                  .a = told[i].number,
                                  .b = late};
        struct torch_item enter = {.kind = TORCH_ENTER, .ts = told[i].end + late};
        assert_int_equal(torch_steps_event(t, 7, &step), 0);
        assert_int_equal(torch_steps_event(t, 7, &enter), 0);
    }
}

static struct torch_steps whole_trace(size_t n) {
    struct torch_steps t = {0};
    struct torch_item enter = {.kind = TORCH_ENTER, .ts = BEGIN};

    assert_int_equal(torch_steps_event(&t, 7, &enter), 0);
    announce(&t, 0, n);
    assert_int_equal(torch_steps_ready(&t), 0);
    return t;
}

static void time_is_divided(void **state) {
    (void)state;
    for (seed = 1; seed < 500; seed++) {
        uint64_t own = seed, parts = 0, ns = 0, count = 0, seq = 0, all = 0;
        size_t n = program();
        struct torch_steps t = whole_trace(n);
        assert_int_equal(t.n, n + 1);
        for (size_t i = 0; i <= n; i++) {
            struct torch_step *s = &t.s[i];
            s->ns[i % TORCH_PARTS] = (int64_t)(i * i);
            s->count[i % TORCH_PARTS] = i + 1;
            s->seq = i + 2;
        }
        for (size_t i = 0; i <= n; i++) {
            const struct torch_step *s = &t.s[i];
            struct torch_step w = torch_steps_whole(s);
            uint64_t begin = i ? told[i - 1].end : BEGIN, sum_ns = 0, sum_count = 0;
            assert_int_equal(s->begin, begin);
            assert_int_equal(s->end, i < n ? told[i].end : 0);
            unsigned source = i < n ? told[i].source : t.s[n].source;
            assert_int_equal(s->source, source);
            assert_int_equal(s->number, i < n ? told[i].number : t.s[n].number);
            if (source == TORCH_EVALUATION) {
                all += s->end - s->begin;
                assert_int_equal(s->part, 0);
                continue;
            }
            ns += i * i;
            count += i + 1;
            seq += i + 2;
            if (source == TORCH_PART) {
                parts += s->end - s->begin;
                continue;
            }
            for (int k = 0; k < TORCH_PARTS; k++) {
                sum_ns += (uint64_t)w.ns[k];
                sum_count += w.count[k];
            }
            assert_int_equal(w.begin, begin - parts);
            assert_int_equal(w.end, s->end);
            assert_int_equal(sum_ns, ns);
            assert_int_equal(sum_count, count);
            assert_int_equal(w.seq, seq);
            all += (i < n ? w.end : begin) - w.begin;
            parts = ns = count = seq = 0;
        }
        assert_int_equal(all, told[n - 1].end - BEGIN);
        /* The one in progress is the next of the last kind of step. */
        size_t last = n;
        while (last > 0 &&
               (told[last - 1].source == TORCH_EVALUATION || told[last - 1].source == TORCH_PART))
            last--;
        assert_int_equal(t.s[n].source, last ? told[last - 1].source : (unsigned)TORCH_BY_ROOT);
        assert_int_equal(t.s[n].number, last ? told[last - 1].number + 1 : 0);
        assert_int_equal(t.s[n].tid, 7);
        for (int k = 0; k < 100; k++) {
            uint64_t ts = BEGIN + any(told[n - 1].end - BEGIN + 500);
            const struct torch_step *s = torch_steps_at(&t, ts);
            assert_true(s && s->begin <= ts && (ts < s->end || !s->end));
        }
        assert_int_equal(t.missed, 0);
        torch_steps_free(&t);
        seed = own;
    }
}

static void continued(void **state) {
    unsigned tried = 0;
    (void)state;
    for (seed = 1; seed < 200; seed++) {
        uint64_t own = seed;
        size_t n = program();
        struct torch_steps t = whole_trace(n);
        for (size_t k = 1; k <= n; k++) {
            struct torch_steps kept = {.leader = 7};
            if (!torch_steps_is(&t.s[k - 1]))
                continue; /* what is dropped ends with a step, so that no part is without it */
            size_t known = k + any(n - k + 1);
            torch_steps_drop(&t, &kept, k);
            assert_int_equal(kept.dropped, k);
            kept.s = calloc(MOST + 1, sizeof *kept.s);
            assert_non_null(kept.s);
            kept.cap = MOST + 1;
            for (size_t i = k; i < known; i++)
                kept.s[kept.n++] = (struct torch_step){.number = told[i].number,
                                                       .end = told[i].end,
                                                       .told = told[i].end,
                                                       .source = told[i].source,
                                                       .tid = 7};
            announce(&kept, known, n);
            assert_int_equal(torch_steps_ready(&kept), 0);
            assert_int_equal(kept.missed, 0);
            assert_int_equal(kept.n, t.n - k);
            for (size_t i = 0; i < kept.n; i++) {
                const struct torch_step *was = &t.s[k + i], *is = &kept.s[i];
                assert_int_equal(is->number, was->number);
                assert_int_equal(is->begin, was->begin);
                assert_int_equal(is->end, was->end);
                assert_int_equal(is->source, was->source);
                assert_int_equal(is->part, was->part);
            }
            struct torch_first a = torch_steps_first(&t), b = torch_steps_first(&kept);
            assert_true(a.number == b.number && a.since == b.since && a.until == b.until);
            /* An event that lies before what was dropped contradicts it. */
            const struct torch_item early = {.kind = TORCH_ENTER, .ts = BEGIN - 1},
                                    next = {.kind = TORCH_ENTER, .ts = BEGIN};
            assert_int_equal(torch_steps_event(&kept, 8, &next), 0);
            assert_int_equal(kept.missed, 0);
            assert_int_equal(torch_steps_event(&kept, 8, &early), 0);
            assert_int_equal(kept.missed, 1);
            torch_steps_free(&kept);
            tried++;
        }
        torch_steps_free(&t);
        seed = own;
    }
    assert_true(tried > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_is_divided),
                                       cmocka_unit_test(continued)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
