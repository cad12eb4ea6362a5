/* SPDX-License-Identifier: Apache-2.0 */
/* The values that PROBING_TORCH_PROFILING may have; the events of a torch_calls record; the steps that they make; batches in a ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/torch_decode.h"
#include "converter/torch_steps.h"
#include "traces/records.h"
#include "traces/settings.h"
#include "traces/torch_setting.h"
#include "traces/varint.h"
#include "writer/ring.h"

static struct torch_setting good(const char *text) {
    struct torch_setting t;
    char why[SETTING_WHY] = "";
    if (torch_setting_parse(text, &t, why, sizeof why))
        fail_msg("%s: %s", text, why);
    assert_int_equal(torch_setting_check(text, why, sizeof why), 0);
    return t;
}

static void test_setting(void **state) {
    (void)state;
    struct torch_setting t = good("");
    assert_true(t.on && t.rate == 1000000 && t.layer_rate == 1000000 && t.backward && !t.exprs[0]);
    assert_false(good("off").on);
    assert_false(good("0").on);
    t = good("0.25");
    assert_true(t.on && t.rate == 250000);
    t = good("on,rate=0.001,layer_rate=0.5,backward=off");
    assert_true(t.on && t.rate == 1000 && t.layer_rate == 500000 && !t.backward);
    t = good("exprs=loss@train,acc1@train,rate=0.1");
    assert_string_equal(t.exprs, "loss@train,acc1@train");
    assert_int_equal(t.rate, 100000);
    assert_true(t.cuda == TORCH_AUTO && t.memory == TORCH_AUTO);
    t = good("cuda=off,memory=all");
    assert_true(t.on && t.cuda == TORCH_NONE && t.memory == TORCH_ALL);
    t = good("exprs=a@f,cuda=all,memory=auto");
    assert_true(t.cuda == TORCH_ALL && t.memory == TORCH_AUTO);
    assert_string_equal(t.exprs, "a@f");
    t = good("rate=0.1,exprs=self.lr@Trainer.fit");
    assert_string_equal(t.exprs, "self.lr@Trainer.fit");
}

static void test_bad_setting(void **state) {
    (void)state;
    static const char *const bad[] = {
        "fast",         "2",         "-1",         "rate=",          "rate=0",
        "rate=0.0001",  "rate=1.01", "rates=0.1",  "backward=maybe", "on,=1",
        "layer_rate=x", "1e-1",      "exprs=loss", "exprs=@train",   "cuda=",
        "cuda=some",    "memory=2",  "cuda",       "memory=0.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[SETTING_WHY] = "";
        if (!torch_setting_check(bad[i], why, sizeof why))
            fail_msg("%s was taken", bad[i]);
        assert_true(why[0]);
    }
    struct setting_value v;
    char why[SETTING_WHY];
    assert_true(setting_parse(SETTING_torch_profiling, "rate=5", &v, why, sizeof why) < 0);
    assert_non_null(strstr(why, "0.001 to 1"));
    assert_true(setting_parse(SETTING_torch_profiling, "cuda=some", &v, why, sizeof why) < 0);
    assert_non_null(strstr(why, "cuda=auto|all|off"));
}

/* ---- events ---- */

static uint8_t *event(uint8_t *p, unsigned kind, uint64_t arg, uint64_t dt) {
    return varint_put(varint_put(p, kind | arg << 4), dt);
}

static void test_decode(void **state) {
    (void)state;
    uint8_t bytes[256], *p = bytes;
    struct torch_decode d;
    struct torch_item e;
    p = event(p, TORCH_OPEN, TORCH_ENTER, 70);
    p = varint_put(varint_put(varint_put(p, 9), 41), 0);
    p = event(p, TORCH_ENTER, 300, 5);
    p = event(p, TORCH_EXIT, TORCH_FAILED, 1000);
    p = event(p, TORCH_BACK, 300, 2);
    p = varint_put(p, 1);
    p = event(p, TORCH_BACK_AT, 3, 1);
    p = varint_put(varint_put(p, 77), 6);
    p = event(p, TORCH_STEP, TORCH_BY_ROOT, 1);
    p = varint_put(varint_put(p, 12), 4);
    torch_decode_start(&d, 1000, bytes, (size_t)(p - bytes));
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_OPEN && e.ts == 930 && e.arg == 9 && e.a == 41 &&
                e.c == TORCH_ENTER);
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_ENTER && e.ts == 1005 && e.arg == 300);
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_EXIT && e.ts == 2005 && e.arg == TORCH_FAILED);
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_BACK && e.arg == 300 && e.a == 1);
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_BACK_AT && e.arg == 3 && e.a == 77 && e.b == 6);
    assert_int_equal(torch_decode_next(&d, &e), 1);
    assert_true(e.kind == TORCH_STEP && e.arg == TORCH_BY_ROOT && e.a == 12 && e.b == 4);
    assert_int_equal(torch_decode_next(&d, &e), 0);
    for (size_t cut = 1; cut < (size_t)(p - bytes);
         cut++) { /* cut anywhere: an end or an error, never more */
        int n = 0, rc;
        torch_decode_start(&d, 1000, bytes, cut);
        while ((rc = torch_decode_next(&d, &e)) > 0)
            assert_true(++n <= 6);
        assert_int_equal(torch_decode_next(&d, &e), 0);
    }
    for (unsigned seed = 1; seed < 2000; seed++) { /* anything at all */
        uint8_t any[64];
        int n = 0;
        srand(seed);
        for (size_t i = 0; i < sizeof any; i++)
            any[i] = (uint8_t)rand();
        torch_decode_start(&d, 1000, any, sizeof any);
        while (torch_decode_next(&d, &e) > 0)
            assert_true(++n <= 32);
    }
}

/* ---- steps ---- */

static void feed(struct torch_steps *t, unsigned kind, uint64_t arg, uint64_t ts, uint64_t a) {
    struct torch_item e = {.kind = kind, .ts = ts, .arg = arg, .a = a};
    assert_int_equal(torch_steps_event(t, 5, &e), 0);
}

static void optimizer(struct torch_steps *t, uint64_t ts) {
    feed(t, TORCH_SPAN, TORCH_SPAN_OPTIMIZER, ts, 0);
    feed(t, TORCH_EXIT, 0, ts + 10, 0);
}

static void test_steps(void **state) {
    (void)state;
    struct torch_steps t = {0};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t at = 1000 * (i + 1);
        feed(&t, TORCH_ENTER, 1, at, 0);
        feed(&t, TORCH_EXIT, 0, at + 100, 0);
        optimizer(&t, at + 200);
        feed(&t, TORCH_STEP, TORCH_BY_OPTIMIZER, at + 211, i);
        if (i == 1) /* a second optimizer of the same step */
            optimizer(&t, at + 300);
    }
    feed(&t, TORCH_ENTER, 1, 5000, 0);
    assert_int_equal(torch_steps_ready(&t), 0);
    assert_int_equal(t.n, 4);
    assert_true(t.s[0].begin == 1000 && t.s[0].end == 1211);
    assert_true(t.s[1].begin == 1211 && t.s[1].end == 2310);
    assert_true(t.s[2].begin == 2310 && t.s[2].end == 3211 && t.s[2].number == 2);
    assert_true(t.s[3].begin == 3211 && t.s[3].end == 0 && t.s[3].number == 3);
    assert_ptr_equal(torch_steps_at(&t, 2305), &t.s[1]);
    assert_ptr_equal(torch_steps_at(&t, 1), &t.s[0]);
    assert_ptr_equal(torch_steps_at(&t, 99999), &t.s[3]);
    assert_ptr_equal(torch_steps_at(&t, 1211), &t.s[1]);
    torch_steps_free(&t);
}

/* What the root module's calls counted before the first optimizer's step was evaluation; the same optimizer's next step is a step of its own. */
static void test_evaluation(void **state) {
    (void)state;
    struct torch_steps t = {0};
    feed(&t, TORCH_ENTER, 1, 100, 0);
    feed(&t, TORCH_STEP, TORCH_BY_ROOT, 200, 0);
    feed(&t, TORCH_STEP, TORCH_BY_ROOT, 300, 1);
    for (unsigned i = 0; i < 3; i++) {
        optimizer(&t, 1000 + 100 * i);
        feed(&t, TORCH_STEP, TORCH_BY_OPTIMIZER, 1011 + 100 * i, i);
    }
    feed(&t, TORCH_STEP, TORCH_EVALUATION, 1500, 3);
    feed(&t, TORCH_ENTER, 1, 1600, 0);
    assert_int_equal(torch_steps_ready(&t), 0);
    assert_int_equal(t.n, 7);
    assert_true(t.s[0].source == TORCH_EVALUATION && t.s[0].begin == 100 && t.s[0].end == 200);
    assert_true(t.s[1].source == TORCH_EVALUATION && t.s[1].end == 300);
    for (unsigned i = 0; i < 3; i++) {
        const struct torch_step *s = &t.s[2 + i];
        assert_true(s->source == TORCH_BY_OPTIMIZER && s->number == i && s->end == 1011 + 100 * i);
    }
    assert_true(t.s[2].begin == 300 && t.s[3].begin == 1011);
    assert_true(t.s[5].source == TORCH_EVALUATION && t.s[5].begin == 1211 && t.s[5].end == 1500);
    assert_true(t.s[6].source == TORCH_BY_OPTIMIZER && t.s[6].number == 3 && t.s[6].begin == 1500);
    torch_steps_free(&t);
}

/* An evaluation that goes on is one evaluation; if its beginning is a row already, that row is wrong. */
static void test_goes_on(void **state) {
    (void)state;
    struct torch_steps t = {0}, kept = {0};
    feed(&t, TORCH_ENTER, 1, 100, 0);
    feed(&t, TORCH_STEP, TORCH_BY_OPTIMIZER, 200, 0);
    feed(&t, TORCH_STEP, TORCH_GOES_ON, 300, 1); /* it does not: the first */
    feed(&t, TORCH_STEP, TORCH_GOES_ON, 400, 1);
    feed(&t, TORCH_STEP, TORCH_EVALUATION, 500, 1);
    assert_int_equal(torch_steps_ready(&t), 0);
    assert_true(t.n == 4 && t.s[1].source == TORCH_EVALUATION && t.s[2].source == TORCH_EVALUATION);
    assert_true(t.s[1].begin == 200 && t.s[1].end == 400 && t.s[2].begin == 400 && !t.missed);
    t.n--;
    torch_steps_drop(&t, &kept, 3);
    feed(&kept, TORCH_STEP, TORCH_GOES_ON, 600, 1);
    assert_true(kept.missed);
    torch_steps_free(&kept);
    torch_steps_free(&t);
}

/* Calls with gradients just before the first step belong to it, those before an evaluation do not; so it is with training by hand. */
static void test_passes(void **state) {
    (void)state;
    for (unsigned by_hand = 0; by_hand < 2; by_hand++)
        for (unsigned evaluations = 0; evaluations < 2; evaluations++) {
            struct torch_steps t = {0}, kept = {0};
            unsigned from = 0, n = 3 + 2 * evaluations;
            uint64_t begin = evaluations ? 300 : 100;
            feed(&t, TORCH_ENTER, 1, 100, 0);
            if (evaluations) {
                feed(&t, TORCH_STEP, TORCH_BY_PASS, 200, from++);
                feed(&t, TORCH_STEP, TORCH_BY_ROOT, 300, from++);
            }
            for (unsigned i = 0; i < 3; i++)
                feed(&t, TORCH_STEP, TORCH_BY_PASS, 400 + 100 * i, from + i);
            for (unsigned i = 0; i < 2; i++)
                feed(&t, TORCH_STEP, by_hand ? TORCH_BY_ROOT : TORCH_BY_OPTIMIZER, 1000 + 100 * i,
                     i);
            feed(&t, TORCH_ENTER, 1, 1600, 0);
            for (unsigned again = 0; again < 2; again++) { /* also of what is gone on with */
                assert_int_equal(torch_steps_ready(&t), 0);
                assert_int_equal(t.n, n + 3);
                for (unsigned i = 0; i < 2 * evaluations; i++)
                    assert_int_equal(t.s[i].source, TORCH_EVALUATION);
                for (uint64_t ts = begin; ts < 1000; ts += 50)
                    assert_ptr_equal(torch_steps_at(&t, ts), &t.s[n]);
                assert_true(t.s[n].begin == begin && t.s[n].end == 1000 && t.s[n].number == 0);
                assert_true(t.s[n + 1].begin == 1000 && t.s[n + 1].number == 1);
                struct torch_first first = torch_steps_first(&t);
                assert_true(first.number == 0 && first.since == (evaluations ? 300 : 1) &&
                            first.until == 1000);
                t.n--;
            }
            torch_steps_drop(&t, &kept, n); /* what comes begins where that did */
            assert_true(kept.dropped_end == begin && kept.dropped_root == 0);
            torch_steps_free(&t);
        }
}

/* ---- batches in a ring ---- */

#define ROOM 1024

static uint64_t *batch(struct ring *r, size_t used) {
    uint64_t *f = ring_reserve(r, TRACE_torch_calls, TRACE_torch_calls_NFIELDS, ROOM);
    assert_non_null(f);
    memset(f + TRACE_torch_calls_NFIELDS, 0xee, used);
    f[TRACE_torch_calls_events] = (uint64_t)(8 + 8 * TRACE_torch_calls_NFIELDS) << 32 | used;
    return f;
}

static struct ring_cursor cursor_at_tail(struct ring *r, int dead) {
    return (struct ring_cursor){.ring = r, .pos = r->tail, .dead = dead};
}

static void test_batches(void **state) {
    (void)state;
    struct ring *r = calloc(1, sizeof *r + 8192);
    ring_init(r, 8192);
    uint64_t *f = batch(r, 30);
    ring_trim(r, f, 30);
    ring_commit(f);
    assert_int_equal(ring_used(r), 8 + 8 * TRACE_torch_calls_NFIELDS + 32);
    f = batch(r, 40); /* something behind it: cannot be trimmed */
    uint64_t *g = ring_reserve(r, TRACE_cpu, 1, 0);
    ring_trim(r, f, 40);
    ring_commit(f);
    ring_commit(g);
    f = batch(r, 50); /* open when the process dies */
    ring_open(f);
    struct ring_cursor c = cursor_at_tail(r, 0);
    for (int i = 0; i < 3; i++)
        assert_non_null(ring_next(&c));
    assert_null(ring_next(&c));
    c = cursor_at_tail(r, 1);
    for (int i = 0; i < 3; i++)
        assert_non_null(ring_next(&c));
    const uint64_t *open = ring_next(&c);
    assert_ptr_equal(open, f - 1);
    assert_int_equal(open[1 + TRACE_torch_calls_events] & 0xffffffff, 50);
    assert_null(ring_next(&c));
    assert_false(c.bad);
    /* and one that had no event yet is nothing */
    f = ring_reserve(r, TRACE_torch_calls, TRACE_torch_calls_NFIELDS, ROOM);
    assert_non_null(f);
    assert_null(ring_next(&c));
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setting),    cmocka_unit_test(test_bad_setting),
        cmocka_unit_test(test_decode),     cmocka_unit_test(test_steps),
        cmocka_unit_test(test_evaluation), cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_passes),     cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
