/* SPDX-License-Identifier: Apache-2.0 */
#include "addresses.h"

#include <errno.h>
#include <string.h>

#include "keys.h"

#define FRAMES_MAX 65536 /* frames of one stack, as in resolve.c */
/* distinct stacks and program counters remembered before the cache is emptied */
#define CACHE_MAX (1u << 20)

struct walk {
    struct epochs *es;
    const struct modules *m;
    int (*fn)(void *ctx, const struct module *mod, uint64_t address);
    void *ctx;
    struct keys seen;
};

/* A stack or (with epoch UINT32_MAX) a program counter, in a period in which the mapped modules stayed the same. */
struct place {
    uint64_t what;
    uint32_t epoch, generation;
};

/* Returns 1 when it was not seen before, 0, or -ENOMEM. */
static int is_new(struct walk *w, uint64_t what, uint32_t epoch, uint32_t generation) {
    struct place p = {what, epoch, generation};
    int fresh;

    if (w->seen.n >= CACHE_MAX) {
        keys_free(&w->seen);
        keys_init(&w->seen);
    }
    return keys_put(&w->seen, &p, sizeof p, &fresh) ? fresh : -ENOMEM;
}

static int report(struct walk *w, uint64_t pc, int call, uint64_t ts) {
    uint64_t at = call && pc ? pc - 1 : pc;
    const struct module *mod = modules_at(w->m, at, ts);

    return mod ? w->fn(w->ctx, mod, at - mod->bias) : 0;
}

static int take(struct walk *w, const struct dict *d, uint32_t epoch, const struct trace_value *v) {
    uint64_t stack = v[TRACE_sample_stack].u, pc = v[TRACE_sample_pc].u, ts = v[TRACE_sample_ts].u;
    uint32_t generation = w->m->nbounds ? modules_generation(w->m, ts) : 0;
    const struct dict_stack *st = stack ? dict_stack(d, stack) : NULL;
    uint64_t prev = 0, x;
    int err = 0, fresh;

    if (!st)
        return 0; /* a program counter without a stack is not used */
    if (pc && (fresh = is_new(w, pc, UINT32_MAX, generation)) != 0)
        err = fresh < 0 ? fresh : report(w, pc, 0, ts);
    if (!err && (fresh = is_new(w, stack, epoch, generation)) != 0) {
        struct trace_value list = st->native;
        err = fresh < 0 ? fresh : 0;
        for (size_t n = 0; !err && n < FRAMES_MAX && trace_list_next(&list, &prev, &x); n++)
            err = report(w, x, 1, ts);
    }
    return err;
}

int addresses_each(struct reader *r, struct epochs *es, const struct modules *m,
                   int (*fn)(void *ctx, const struct module *mod, uint64_t address), void *ctx) {
    struct walk w = {.es = es, .m = m, .fn = fn, .ctx = ctx};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct reader_data data = {0};
    struct trace_rows rows;
    int err = 0;

    keys_init(&w.seen);
    for (size_t i = 0; !err && i < reader_blocks(r); i++) {
        if (!reader_may_hold(r, i, 1ull << TRACE_sample) || (err = reader_load(r, i, &data)) != 0) {
            err = err == -ENOMEM ? err : 0; /* a block that cannot be read is left out */
            continue;
        }
        const struct dict *d = epochs_get(es, data.h.epoch);
        err = d ? 0 : -ENOMEM;
        if (d)
            trace_rows_start(&rows, &data.h, data.data);
        while (!err && trace_rows_next(&rows, 1ull << TRACE_sample, v) > 0)
            err = take(&w, d, data.h.epoch, v);
    }
    keys_free(&w.seen);
    reader_data_free(&data);
    return err;
}
