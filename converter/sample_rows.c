/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPACE_EVERY 256 /* samples between two checks whether the queue has space */
#define MANY        256 /* number of samples decoded at a time */

struct sample_rows {
    struct load *l;
    uint64_t since_space;
    struct reader_data data;
    uint64_t ts[MANY], tid[MANY], stack[MANY], pc[MANY], cpu_us[MANY], count[MANY], flags[MANY];
    size_t block;
    struct sample_row *spare; /* for merging */
    size_t spare_cap;
};

static int push(struct sample_batch *b, const struct sample_row *row) {
    if (b->n == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 8192;
        void *p = realloc(b->rows, cap * sizeof *b->rows);
        if (!p)
            return -ENOMEM;
        b->rows = p;
        b->cap = cap;
    }
    b->rows[b->n++] = *row;
    return 0;
}

/* Resolves the i-th sample and adds it to the sums. */
static int take(struct sample_rows *s, struct sample_batch *b, size_t i) {
    struct load *l = s->l;
    uint64_t ts = s->ts[i];
    struct sample_row row = {.cpu_us = s->cpu_us[i], .count = s->count[i], .flags = s->flags[i]};
    int missing = 0;
    struct resolver_total *t =
        resolver_stack(l->resolver, s->data.h.epoch, s->stack[i], s->pc[i], ts, &missing);
    struct thread *th = threads_at(&l->meta->threads, s->tid[i], ts);
    uint64_t running = row.flags & 1 ? row.count : 0;

    if (!t || !th)
        return -ENOMEM;
    l->unresolved += missing != 0;
    l->samples += row.count;
    t->samples++;
    t->count += row.count;
    t->running += running;
    t->cpu_us += row.cpu_us;
    uint64_t period = meta_period_at(l->meta, ts);
    t->ns += row.count * period;
    t->running_ns += running * period;
    th->samples += row.count;
    th->running += running;
    th->cpu_us += row.cpu_us;
    if (l->no_rows)
        return 0;
    row.ts = clock_utc(&l->meta->clock, ts);
    row.thread = th - l->meta->threads.t + 1;
    row.stack = t->site;
    return push(b, &row);
}

/* Merges the ascending runs [a, m) and [m, e) of from into to. */
static void merge_runs(const struct sample_row *from, size_t a, size_t m, size_t e,
                       struct sample_row *to) {
    size_t i = a, k = m;

    for (size_t o = a; o < e; o++)
        to[o] = i < m && (k >= e || from[i].ts <= from[k].ts) ? from[i++] : from[k++];
}

/* Returns the end of the ascending run that begins at i. */
static size_t run_end(const struct sample_row *rows, size_t n, size_t i) {
    while (++i < n && rows[i - 1].ts <= rows[i].ts)
        ;
    return i;
}

/* Natural merge sort: a block is a few ascending runs, one per ring and drain. */
static int sort(struct sample_rows *s, struct sample_batch *b) {
    if (b->n < 2 || run_end(b->rows, b->n, 0) >= b->n)
        return 0;
    if (s->spare_cap < b->cap) {
        void *p = realloc(s->spare, b->cap * sizeof *s->spare);
        if (!p)
            return -ENOMEM;
        s->spare = p;
        s->spare_cap = b->cap;
    }
    while (run_end(b->rows, b->n, 0) < b->n) {
        for (size_t a = 0, m, e; a < b->n; a = e) {
            m = run_end(b->rows, b->n, a);
            e = m < b->n ? run_end(b->rows, b->n, m) : m;
            merge_runs(b->rows, a, m, e, s->spare);
        }
        struct sample_row *rows = b->rows;
        size_t cap = b->cap;
        b->rows = s->spare;
        b->cap = s->spare_cap;
        s->spare = rows;
        s->spare_cap = cap;
        if (s->spare_cap < b->n) /* cannot happen: both hold the batch */
            return -ENOMEM;
    }
    return 0;
}

/* Returns 1 when the sample lies in the wanted part of the trace. Stacks of triggers are samples too. */
static int wanted(const struct load *l, uint64_t ts, uint64_t count) {
    uint64_t types = l->shared.types;

    if (l->shared.hi && (ts < l->shared.lo || ts > l->shared.hi))
        return 0;
    return !types || types >> TRACE_sample & 1 || (types >> TRACE_trigger & 1 && count == 0);
}

/* Waits while the queue is full. It is checked within blocks too, because the samples of one block may name a hundred thousand functions. */
static int make_space(struct sample_rows *s) {
    struct load *l = s->l;

    if (!l->wait_for_space || ++s->since_space % SPACE_EVERY)
        return 0;
    return queue_is_full(l->stacks->rows) ? l->wait_for_space(l->samples_ctx) : 0;
}

/* Takes the samples of a block. Returns 0 or -ENOMEM. */
static int take_all(struct sample_rows *s, struct sample_batch *b) {
    const struct trace_samples to = {s->ts, s->tid, s->stack, s->pc, s->cpu_us, s->count, s->flags};
    struct trace_rows rows;
    size_t n = MANY;
    int damaged = 0, err = 0;

    trace_rows_start(&rows, &s->data.h, s->data.data);
    while (!err && n == MANY && !damaged) {
        n = trace_samples_next(&rows, &to, MANY, &damaged);
        for (size_t i = 0; !err && i < n; i++)
            if (wanted(s->l, s->ts[i], s->count[i]) && (err = make_space(s)) == 0)
                err = take(s, b, i);
    }
    if (damaged)
        reader_damaged(s->l->shared.reader, s->block - 1);
    return err;
}

int sample_rows_fill(struct sample_rows *s, struct sample_batch *b) {
    struct reader *r = s->l->shared.reader;
    const uint64_t want = 1ull << TRACE_sample, types = s->l->shared.types;
    const int is_asked = !types || types & (want | 1ull << TRACE_trigger);
    const uint64_t from = (is_asked ? want : 0) | (types & STRIPS_TYPES);
    const uint64_t keep = STRIPS_TYPES & (types ? types | READER_ALWAYS : ~0ull);
    int err;

    b->n = 0;
    while (s->block < reader_blocks(r)) {
        const struct reader_block *block = reader_block(r, s->block++);
        if (!(block->types & from) || block->kind != TRACE_KIND_DATA ||
            block->state == READER_PASSED)
            continue;
        b->part = (double)(block->pos - reader_block(r, 0)->pos) / (double)reader_size(r);
        err = reader_load(r, s->block - 1, &s->data);
        if (err == -ENOMEM)
            return err;
        if (err)
            continue;
        if ((err = strips_take(&s->l->strips, s->block - 1, &s->data.h, s->data.data, keep)) != 0)
            return err;
        if (!is_asked)
            return 1;
        err = take_all(s, b);
        if (!err)
            err = sort(s, b);
        return err ? err : 1;
    }
    return 0;
}

int sample_rows_new(struct sample_rows **out, struct load *l) {
    *out = calloc(1, sizeof **out);
    if (*out) {
        (*out)->l = l;
        (*out)->block = l->shared.first;
    }
    return *out ? 0 : -ENOMEM;
}

void sample_rows_free(struct sample_rows *s) {
    if (!s)
        return;
    free(s->spare);
    reader_data_free(&s->data);
    free(s);
}
