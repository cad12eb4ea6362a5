/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare.h"

#include <errno.h>
#include <string.h>

#define FEW_BYTES (64 << 10) /* of a trace: some ten thousand samples at most */

/* Restricts reading to what was asked for, once the trace's clock is known: from here on nothing else is read. */
static void take_part(struct prepared *p, const struct prepare_plan *plan, struct reader *r,
                      struct clock_map *clock) {
    struct vtab_shared *s = &p->load.shared;
    uint64_t types = plan->types ? plan->types : UINT64_MAX;

    s->types = plan->types ? plan->types : plan->need;
    s->lo = plan->since == INT64_MIN ? 0 : clock_mono(clock, plan->since);
    s->hi = plan->until == INT64_MAX ? UINT64_MAX : clock_mono(clock, plan->until);
    s->hi +=
        !s->hi; /* 0 would mean everything, but a time before the machine was started means nothing */
    if (types >> TRACE_trigger & 1) /* their stacks are samples */
        types |= 1ull << TRACE_sample;
    types |= 1ull << TRACE_symbol; /* names of addresses, whenever they were recorded */
    if (s->types || s->lo || s->hi != UINT64_MAX)
        reader_range(r, s->lo, s->hi, types);
    if (!s->lo && s->hi == UINT64_MAX)
        s->hi = 0;
}

/* Finds out which recording the trace is, and whether the database has it already. */
static void identify(struct prepared *p, const struct prepare_plan *plan, size_t nth,
                     const struct reader *r) {
    if (nth == SIZE_MAX)
        return;
    p->boot = align_boot_of(plan->align, nth);
    align_recording(plan->align, nth, p->recording);
    p->was = append_find(plan->append, p->recording);
    if (p->was)
        p->state = p->was->bytes < (int64_t)reader_size(r) ? APPEND_GROWN : APPEND_SAME;
    if ((p->copy = align_copy_of(plan->align, nth)) != 0)
        p->state = APPEND_SAME;
}

/* Skips the blocks that were read when the trace was converted before, if they are still the same. */
static void skip_known(struct prepared *p, const struct prepare_plan *plan, struct reader *r) {
    if (p->state != APPEND_GROWN || plan->partial || !resume_begins(&p->was->at, r))
        return;
    p->resumed = 1;
    p->load.shared.first = p->was->at.blocks;
    reader_known(r, p->was->at.blocks, p->was->rows.lost);
}

/* Restricts reading to records that become rows, and to those that are needed to make sense of them. */
static void want(struct reader *r, uint64_t need) {
    if (need & VTAB_STEPS)
        need |= 1ull << TRACE_torch_calls;
    if (need & (VTAB_STACKS | VTAB_FUNCTIONS))
        need |= 1ull << TRACE_symbol;
    if (need)
        reader_want(r, need);
}

/* Gives up continuing the trace: it has to be read completely after all. */
static int read_all(struct prepared *p) {
    const uint64_t none[TRACE_NLOST] = {0};

    p->resumed = 0;
    p->load.shared.first = 0;
    reader_known(p->load.shared.reader, 0, none);
    want(p->load.shared.reader, p->load.shared.types);
    return reader_check(p->load.shared.reader);
}

int prepare_read(struct prepared *p, const struct prepare_plan *plan, const struct input *in,
                 unsigned part, struct reader *r, size_t nth) {
    struct vtab_shared *s = &p->load.shared;

    memset(p, 0, sizeof *p);
    p->in = in;
    p->part = part;
    p->state = APPEND_NEW;
    identify(p, plan, nth, r);
    if (p->state == APPEND_SAME)
        return 0;
    s->reader = r;
    s->strips = &p->load.strips;
    s->types = plan->need;
    p->load.meta = &p->meta;
    p->load.modules = plan->need ? NULL : &p->modules;
    p->load.stacks = plan->stacks;
    p->load.no_rows = plan->need && !(plan->need & (VTAB_ROWS | 1ull << TRACE_trigger));
    skip_known(p, plan, r);
    want(r, plan->need);
    /* otherwise blocks are checked as their rows are made */
    if (!plan->partial && !plan->need && reader_check(r) != 0)
        return -ENOMEM;
    if (plan->partial && p->boot) { /* done first, so that what is left out is not read at all */
        struct meta aligned = {0};
        int err = align_apply(plan->align, nth, &aligned);
        if (!err)
            take_part(p, plan, r, &aligned.clock);
        clock_free(&aligned.clock);
        if (err)
            return err;
    }
    s->epochs = epochs_new(r);
    int has_stacks = !plan->need || plan->need & (VTAB_STACKS | VTAB_FUNCTIONS),
        has_native = has_stacks && !(plan->need & VTAB_PYTHON);
    if (s->epochs && !has_native)
        epochs_without_modules(s->epochs);
    if (s->epochs && !has_stacks)
        epochs_without_stacks(s->epochs);
    if (s->epochs && !has_stacks && p->resumed)
        epochs_give(s->epochs, p->was->kept, p->was->nkept);
    if (s->epochs && has_stacks && p->resumed)
        epochs_take(s->epochs, p->was->dictionary, p->was->ndictionary);
    if (!s->epochs || meta_load(&p->meta, r, s->epochs) != 0 ||
        recorded_load(&p->recorded, r, s->epochs) != 0 ||
        (has_native && modules_load(&p->modules, r, s->epochs, plan->symbols, &p->recorded) != 0) ||
        (p->boot && align_apply(plan->align, nth, &p->meta) != 0))
        return -ENOMEM;
    epochs_trim(s->epochs); /* the turn of its samples may come later */
    if (plan->partial && !p->boot)
        take_part(p, plan, r, &p->meta.clock);
    return plan->partial ? reader_check(r) : 0;
}

int prepare_begin(struct prepared *p, const struct prepare_plan *plan, uint32_t trace) {
    const struct meta *m = &p->meta;

    p->load.trace = p->was ? p->was->id : trace;
    const struct resolver_options o = {
        .eval_start = m->eval_start,
        .eval_end = m->eval_end,
        .cold_start = m->cold_start,
        .cold_end = m->cold_end,
        .reader = p->load.shared.reader,
        .meta = m,
        .recorded = &p->recorded,
        .trace = p->load.trace,
        .sums = !plan->need || plan->need & (VTAB_SUMS | VTAB_FUNCTIONS),
        .few =
            p->resumed && (int64_t)reader_size(p->load.shared.reader) - p->was->bytes < FEW_BYTES,
        .functions_only = plan->sites->no_frames,
        .no_native = (plan->need & VTAB_PYTHON) != 0,
        .no_stacks =
            plan->need >> TRACE_sample & 1 && !(plan->need & (VTAB_STACKS | VTAB_FUNCTIONS))};
    if (p->resumed &&
        !resume_fits(&p->was->at, &p->was->rows, p->load.shared.reader, &p->meta, &p->modules,
                     plan->sites) &&
        read_all(p) != 0)
        return -ENOMEM;
    p->load.resolver =
        resolver_new(p->load.shared.epochs, &p->modules, plan->sites, plan->stacks, &o);
    if (!p->load.resolver ||
        (p->resumed && epochs_have_stacks(p->load.shared.epochs) &&
         resolver_restore(p->load.resolver, p->was->kept, p->was->nkept, p->was->nbase) != 0))
        return -ENOMEM;
    return sample_rows_new(&p->rows, &p->load);
}

int prepare_samples(struct prepared *p, struct sample_batch *b) {
    int more = sample_rows_fill(p->rows, b);

    return more ? more : resolver_end(p->load.resolver);
}

void prepare_free(struct prepared *p) {
    sample_rows_free(p->rows);
    strips_free(&p->load.strips);
    resolver_free(p->load.resolver);
    modules_free(&p->modules);
    recorded_free(&p->recorded);
    meta_free(&p->meta);
    epochs_free(p->load.shared.epochs);
    memset(p, 0, sizeof *p);
}
