/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converter/torch_state.h: a state that was saved and restored is the same; no part of a saved state is
 * taken for a whole one, and no changed byte makes it read or write outside its arrays; and what was counted is taken over only for the same steps.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "converter/torch_state.h"

#define BASE   (5ll << 40)
#define SECOND 1000000000ull

static uint64_t seed;

static uint64_t any(uint64_t n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 20) % n;
}

static uint64_t word(void) { /* small and large ones */
    return any(1ull << 40) << any(24) >> any(62);
}

static void random_interval(struct torch_interval *v, const struct torch_state *t) {
    *v = (struct torch_interval){.ts = 5 * SECOND + any(30 * SECOND),
                                 .id = t->base + 1 + (int64_t)any((uint64_t)t->begun),
                                 .name = word(),
                                 .call = word(),
                                 .tid = word(),
                                 .step = word(),
                                 .seq = word(),
                                 .inner = (int64_t)word() - (1 << 20),
                                 .depth = (uint32_t)any(TORCH_DEPTH),
                                 .has_step = (int)any(2),
                                 .stage = (enum torch_stage)any(STAGE_DATA + 1),
                                 .flags = (unsigned)any(1024),
                                 .part = (int)any(TORCH_PARTS + 1) - 1};
    if (any(2))
        v->parent = v->id - 1 - (int64_t)any(100);
}

/* Everything that is saved, with a point at the end of `most`. The steps belong to the state. */
static void random_state(struct torch_state *t, struct torch_point *p) {
    *t = (struct torch_state){.base = BASE, .begun = 1 + (int64_t)any(1 << 20)};
    t->names = word();
    t->pass_end = word();
    for (uint64_t n = any(any(2) ? 9 : 2); n; n--) {
        struct torch_open *o = torch_state_thread(t, word());
        assert_non_null(o);
        o->n = 0;
        for (uint64_t k = any(5); k; k--) {
            assert_int_equal(torch_state_room(o), 0);
            random_interval(&o->open[o->n++], t);
        }
    }
    for (uint64_t n = any(9); n; n--)
        assert_int_equal(torch_state_model(t, any(4) ? any(300) : 0), 0);
    for (uint64_t n = any(40); n; n--) {
        struct torch_sum *s =
            torch_state_sum(t, any(3) ? any(9) : word(), (unsigned)any(STAGE_DATA + 1));
        assert_non_null(s);
        *s = (struct torch_sum){(int64_t)word(), (int64_t)word(), (int64_t)word(), -(int64_t)word(),
                                (int64_t)word()};
    }
    struct torch_steps *s = &t->steps;
    s->n = s->cap = 1 + any(50);
    s->s = calloc(s->n, sizeof *s->s);
    assert_non_null(s->s);
    uint64_t ts = SECOND;
    for (size_t i = 0; i < s->n; i++) {
        struct torch_step *e = &s->s[i];
        *e = (struct torch_step){.number = i + any(2),
                                 .begin = ts,
                                 .end = ts += 1 + any(2 * SECOND),
                                 .source = TORCH_BY_OPTIMIZER};
        if (any(4) == 0)
            e->source = any(2) ? TORCH_EVALUATION : TORCH_PART;
        e->tid = any(5);
        e->told = any(2) ? e->end : 0;
        e->seq = word();
        for (int k = 0; k < TORCH_PARTS; k++) {
            e->ns[k] = (int64_t)word() - 1000;
            e->count[k] = word();
        }
    }
    s->leader = any(5);
    s->first = SECOND;
    s->grouped = (int)any(2);
    s->before = word();
    s->depth = (uint32_t)any(4);
    *p = (struct torch_point){.steps = *s, .from = word(), .most = 1 + any(ts), .end = ts};
    p->steps.n = 1;
    while (p->steps.n < s->n && s->s[p->steps.n].end <= p->most)
        p->steps.n++;
    p->end = s->s[p->steps.n - 1].end;
}

static void same_interval(const struct torch_interval *a, const struct torch_interval *b) {
    assert_int_equal(a->ts, b->ts);
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->parent, b->parent);
    assert_int_equal(a->name, b->name);
    assert_int_equal(a->call, b->call);
    assert_int_equal(a->tid, b->tid);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->inner, b->inner);
    assert_int_equal(a->depth, b->depth);
    assert_int_equal(a->has_step, b->has_step);
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->part, b->part);
}

/* b: restored from what was saved of a, whose first `dropped` steps are settled. */
static void same_state(struct torch_state *a, struct torch_state *b, const struct torch_point *p) {
    size_t open = 0, k = b->steps.dropped;
    assert_int_equal(b->from, p->from);
    assert_int_equal(b->most, p->most);
    assert_int_equal(b->begun, a->begun);
    assert_int_equal(b->names, a->names);
    assert_int_equal(b->pass_end, a->pass_end);
    for (size_t i = 0; i < a->nthreads; i++) {
        if (!a->threads[i]->n)
            continue;
        struct torch_open *o = torch_state_thread(b, a->threads[i]->tid);
        assert_int_equal(o->n, a->threads[i]->n);
        for (uint32_t n = 0; n < o->n; n++)
            same_interval(&a->threads[i]->open[n], &o->open[n]);
        open++;
    }
    assert_int_equal(b->nthreads, open); /* those without open calls were left out */
    for (size_t i = 0; i < a->nmodels || i < b->nmodels; i++)
        assert_int_equal(i < b->nmodels && b->models[i], i < a->nmodels && a->models[i]);
    assert_int_equal(a->nmodels > 0, b->nmodels > 0);
    assert_int_equal(a->summed.n, b->summed.n);
    for (uint32_t id = 1; id <= a->summed.n; id++) {
        const uint64_t *key = keys_key(&a->summed, id, NULL);
        assert_memory_equal(torch_state_sum(b, key[0], (unsigned)key[1]), &a->sums[id - 1],
                            sizeof *a->sums);
    }
    assert_int_equal(a->summed.n, b->summed.n); /* it was there */
    assert_int_equal(b->steps.n, p->steps.n - k);
    assert_true(b->steps.cap >= b->steps.n);
    for (size_t i = 0; i < b->steps.n; i++) {
        const struct torch_step *was = &a->steps.s[k + i], *is = &b->steps.s[i];
        assert_int_equal(is->number, was->number);
        assert_int_equal(is->end, i + 1 < b->steps.n ? was->end : p->end);
        assert_int_equal(is->told, was->told);
        assert_int_equal(is->source, was->source);
        assert_int_equal(is->tid, was->tid);
    }
    /* Counted were the steps that had begun before the point; the one in progress is the last of them. */
    for (size_t i = k; i < a->steps.n; i++)
        assert_int_equal(i < k + b->ncounted, a->steps.s[i].begin <= p->most);
    for (size_t i = 0; i < b->ncounted; i++) {
        const struct torch_step *was = &a->steps.s[k + i];
        const struct torch_counted *is = &b->counted[i];
        assert_int_equal(is->number, was->number);
        assert_int_equal(is->begin, was->begin);
        assert_int_equal(is->source, was->source);
        assert_int_equal(is->tid, was->tid);
        assert_int_equal(is->seq, was->seq);
        assert_memory_equal(is->ns, was->ns, sizeof is->ns);
        assert_memory_equal(is->count, was->count, sizeof is->count);
    }
    assert_int_equal(b->steps.leader, p->steps.leader);
    assert_int_equal(b->steps.first, p->steps.first);
    assert_int_equal(b->steps.grouped, p->steps.grouped);
    assert_int_equal(b->steps.before, p->steps.before);
    assert_int_equal(b->steps.depth, p->steps.depth);
}

/* Nothing that may still change is dropped: not what ended in the last ten seconds, nor what an open call or a later event lies in. */
static void settled(const struct torch_state *a, const struct torch_state *b,
                    const struct torch_point *p, uint64_t later) {
    uint64_t limit = p->most > 10 * SECOND ? p->most - 10 * SECOND : 0;
    size_t dropped = 0;
    limit = later < limit ? later : limit;
    for (size_t i = 0; i < a->nthreads; i++)
        for (uint32_t k = 0; k < a->threads[i]->n; k++)
            limit = a->threads[i]->open[k].ts < limit ? a->threads[i]->open[k].ts : limit;
    while (dropped + 1 < p->steps.n && a->steps.s[dropped].end <= limit)
        dropped++;
    int train = 0;
    for (size_t i = 0; i < dropped; i++)
        train |= torch_steps_is(&a->steps.s[i]);
    for (size_t i = dropped; i > 0 && !torch_steps_is(&a->steps.s[i - 1]); i--)
        if (a->steps.s[i - 1].source == TORCH_PART) /* of a step that is kept */
            dropped = i - 1;
    assert_int_equal(b->steps.dropped, train ? dropped : 0);
    if (!train)
        return;
    assert_int_equal(b->steps.dropped_end, a->steps.s[dropped - 1].end);
    while (!torch_steps_is(&a->steps.s[dropped - 1]))
        dropped--;
    assert_int_equal(b->steps.dropped_number, a->steps.s[dropped - 1].number + 1);
    assert_int_equal(b->steps.dropped_source, a->steps.s[dropped - 1].source);
}

static void what_is_saved_is_restored(void **state) {
    size_t dropped = 0, models = 0, counted = 0;
    (void)state;
    for (seed = 1; seed < 400; seed++) {
        uint64_t own = seed;
        struct torch_state a, b = {.base = BASE};
        struct torch_point p;
        size_t n;
        random_state(&a, &p);
        uint64_t later = any(3) ? UINT64_MAX : any(60 * SECOND);
        uint8_t *saved = torch_state_save(&a, &p, later, &n);
        assert_non_null(saved);
        assert_int_equal(torch_state_restore(&b, saved, n), 0);
        same_state(&a, &b, &p);
        settled(&a, &b, &p, later);
        dropped += b.steps.dropped;
        models += b.nmodels > 0;
        counted += b.ncounted;
        free(saved);
        torch_state_free(&a);
        torch_state_free(&b);
        seed = own;
    }
    assert_true(dropped > 100 && models > 100 && counted > 100);
}

static void no_part_is_a_whole(void **state) {
    unsigned accepted = 0;
    (void)state;
    for (seed = 1; seed < 25; seed++) {
        uint64_t own = seed;
        struct torch_state a;
        struct torch_point p;
        size_t n;
        random_state(&a, &p);
        uint8_t *saved = torch_state_save(&a, &p, UINT64_MAX, &n);
        assert_non_null(saved);
        for (size_t i = 0; i < n; i++) {
            struct torch_state b = {.base = BASE}, c = {.base = BASE};
            uint8_t *part = malloc(i ? i : 1),
                    *other = malloc(
                        n); /* of that size, so that a sanitizer sees what is read beyond it */
            assert_true(part && other);
            memcpy(part, saved, i);
            assert_int_equal(torch_state_restore(&b, part, i), -EBADMSG);
            memcpy(other, saved, n);
            other[i] ^= (uint8_t)(1 + any(255));
            int ok = torch_state_restore(&c, other, n) == 0;
            for (size_t k = 0; ok && k < c.nthreads; k++)
                for (uint32_t m = 0; m < c.threads[k]->n; m++) {
                    assert_in_range(c.threads[k]->open[m].part + 1, 0, TORCH_PARTS);
                    assert_in_range(c.threads[k]->open[m].stage, 0, STAGE_DATA);
                }
            accepted += (unsigned)ok;
            free(part);
            free(other);
            torch_state_free(&b);
            torch_state_free(&c);
        }
        free(saved);
        torch_state_free(&a);
        seed = own;
    }
    assert_true(accepted > 0);
}

/* The steps as two conversions found them: the counts of the first are taken over if all it had begun are the same. */
static void known_steps(void **state) {
    enum { STEPS = 6, COUNTED = 4 };
    struct torch_step s[STEPS];
    struct torch_counted c[COUNTED];
    (void)state;
    for (int what = 0; what < 8; what++)
        for (int at = 0; at < STEPS; at++) {
            struct torch_state t = {.most = 350,
                                    .steps = {.s = s, .n = STEPS, .cap = STEPS},
                                    .counted = c,
                                    .ncounted = COUNTED};
            int known = 1;
            memset(s, 0, sizeof s);
            memset(c, 0, sizeof c);
            for (unsigned i = 0; i < STEPS; i++) {
                s[i] = (struct torch_step){.number = 10 + i,
                                           .begin = i * 100,
                                           .end = i * 100 + 100,
                                           .source = TORCH_BY_OPTIMIZER,
                                           .tid = 7};
                if (i < COUNTED)
                    c[i] = (struct torch_counted){.number = 10 + i,
                                                  .begin = i * 100,
                                                  .source = TORCH_BY_OPTIMIZER,
                                                  .tid = 7,
                                                  .ns = {i, i + 1, i + 2, i + 3},
                                                  .count = {9, 8, 7, i},
                                                  .seq = 100 + i};
            }
            switch (what) {
            case 0:
                s[at].number++;
                known = at >= COUNTED;
                break;
            case 1:
                s[at].begin++;
                known = at >= COUNTED;
                break;
            case 2:
                s[at].source = TORCH_BY_ROOT;
                known = at >= COUNTED;
                break;
            case 3:
                s[at].tid = 8;
                known = at >= COUNTED;
                break;
            case 4:
                t.steps.n =
                    (size_t)at; /* fewer than there were, or as many and all that have begun */
                t.most = 550;
                known = at == COUNTED;
                break;
            case 5:
                known = 0;
                t.steps.missed = at + 1;
                break;
            case 6:
                s[COUNTED].begin =
                    348 + (unsigned)at; /* one more had begun by then: it had not been counted */
                known = 348 + at > 350;
                break;
            default:
                t.ncounted = 0; /* saved when there were no steps */
            }
            assert_int_equal(torch_state_known(&t), known);
            for (size_t i = 0; i < COUNTED; i++)
                if (known && t.ncounted) {
                    assert_memory_equal(s[i].ns, c[i].ns, sizeof c[i].ns);
                    assert_memory_equal(s[i].count, c[i].count, sizeof c[i].count);
                    assert_int_equal(s[i].seq, c[i].seq);
                }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_restored),
        cmocka_unit_test(no_part_is_a_whole),
        cmocka_unit_test(known_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
