/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_rows.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES 3 /* one being filled, one being inserted, one between */

struct sample_rows {
    struct load *l;
    /* the maker's */
    struct reader_data data;
    size_t block;
    struct sample_row *spare; /* for merging */
    size_t spare_cap;
    /* shared: batches filled .. taken, counted for ever */
    struct sample_batch batch[BATCHES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t filled, taken;
    int end; /* 1: no more, -errno: failed; after `filled` batches */
    int stop;
    int threaded;
    pthread_t thread;
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

/* Resolves one sample and adds it up. */
static int take(struct sample_rows *s, struct sample_batch *b, const struct trace_value *v) {
    struct load *l = s->l;
    uint64_t ts = v[TRACE_sample_ts].u, stack = v[TRACE_sample_stack].u;
    struct sample_row row = {.cpu_us = v[TRACE_sample_cpu_us].u,
                             .count = v[TRACE_sample_count].u,
                             .flags = v[TRACE_sample_flags].u};
    struct resolver_total *t =
        resolver_stack(l->resolver, s->data.h.epoch, stack, v[TRACE_sample_pc].u, ts);
    struct thread *th = threads_at(&l->meta->threads, v[TRACE_sample_tid].u, ts);
    uint64_t running = row.flags & 1 ? row.count : 0;

    if (!t || !th)
        return -ENOMEM;
    if (!t->site && stack)
        l->unresolved++;
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
    row.ts = clock_utc(&l->meta->clock, ts);
    row.thread = (int64_t)((uint64_t)l->trace << 40) + (th - l->meta->threads.t) + 1;
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

/* The end of the ascending run that begins at i. */
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
        if (s->spare_cap < b->n) /* cannot be: both hold the batch */
            return -ENOMEM;
    }
    return 0;
}

/* Fills b from the next block that has samples. 1; 0 at the end; -ENOMEM. */
static int fill(struct sample_rows *s, struct sample_batch *b) {
    struct reader *r = s->l->shared.reader;
    const uint64_t want = 1ull << TRACE_sample;
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int type, err;

    b->n = 0;
    while (s->block < reader_blocks(r)) {
        const struct reader_block *block = reader_block(r, s->block++);
        if (!(block->types & want))
            continue;
        b->part = (double)(block->pos - reader_block(r, 0)->pos) / (double)reader_size(r);
        err = reader_load(r, s->block - 1, &s->data);
        if (err == -ENOMEM)
            return err;
        if (err)
            continue;
        if ((err = strips_take(&s->l->strips, s->block - 1, &s->data.h, s->data.data,
                               TRACE_sample)) != 0)
            return err;
        trace_rows_start(&rows, &s->data.h, s->data.data);
        while ((type = trace_rows_next(&rows, want, v)) > 0)
            if ((err = take(s, b, v)) != 0)
                return err;
        if (type < 0)
            reader_damaged(r, s->block - 1);
        if (b->n)
            return (err = sort(s, b)) ? err : 1;
    }
    return 0;
}

static void *maker(void *arg) {
    struct sample_rows *s = arg;
    int more = 1;

    while (more > 0) {
        pthread_mutex_lock(&s->lock);
        while (!s->stop && s->filled - s->taken >= BATCHES)
            pthread_cond_wait(&s->changed, &s->lock);
        int stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        if (stop)
            break;
        more = fill(s, &s->batch[s->filled % BATCHES]);
        pthread_mutex_lock(&s->lock);
        if (more > 0)
            s->filled++;
        else
            s->end = more < 0 ? more : 1;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

int sample_rows_start(struct sample_rows **out, struct load *l) {
    struct sample_rows *s = calloc(1, sizeof *s);
    sigset_t all, old;

    *out = s;
    if (!s)
        return -ENOMEM;
    s->l = l;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    sigfillset(&all); /* signals are the caller's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    s->threaded = pthread_create(&s->thread, NULL, maker, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return 0;
}

int sample_rows_next(struct sample_rows *s, const struct sample_batch **batch) {
    int rc;

    if (!s->threaded) {
        *batch = &s->batch[0];
        return fill(s, &s->batch[0]);
    }
    /* what was given out stays untouched until now: `taken` counts batches given back */
    pthread_mutex_lock(&s->lock);
    if (*batch) {
        s->taken++;
        pthread_cond_broadcast(&s->changed);
    }
    while (s->filled == s->taken && !s->end)
        pthread_cond_wait(&s->changed, &s->lock);
    rc = s->filled != s->taken ? 1 : s->end < 0 ? s->end : 0;
    *batch = rc > 0 ? &s->batch[s->taken % BATCHES] : NULL;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void sample_rows_stop(struct sample_rows *s) {
    if (!s)
        return;
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        s->stop = 1;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; i < BATCHES; i++)
        free(s->batch[i].rows);
    free(s->spare);
    reader_data_free(&s->data);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}
