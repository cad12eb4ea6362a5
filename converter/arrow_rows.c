/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLACES (sizeof((struct arrow_rows *)0)->places / sizeof(struct arrow_place))
#define TIDS   (sizeof((struct arrow_rows *)0)->tids / sizeof((struct arrow_rows *)0)->tids[0])

void arrow_rows_init(struct arrow_rows *r, const struct probing_request *rq,
                     struct arrow_notes *notes) {
    r->rq = rq;
    r->notes = notes;
    arrow_stacks_init(&r->stacks);
}

static void close_trace(struct arrow_rows *r) {
    resolver_free(r->resolver);
    r->resolver = NULL;
    modules_free(&r->modules);
    memset(&r->modules, 0, sizeof r->modules);
    recorded_free(&r->recorded);
    memset(&r->recorded, 0, sizeof r->recorded);
    r->open = r->loaded = 0;
}

void arrow_rows_free(struct arrow_rows *r) {
    close_trace(r);
    arrow_trace_close(&r->t);
    arrow_stacks_free(&r->stacks);
    symbols_free(r->symbols);
    reader_data_free(&r->data);
}

static int out_of_memory(struct arrow_rows *r) {
    return arrow_fail(r->notes, -ENOMEM, "no memory");
}

/* Returns 1; 0: there are no more; -errno, after arrow_fail(). */
static int open_trace(struct arrow_rows *r) {
    struct arrow_trace *t = &r->t;

    close_trace(r);
    int rc = arrow_trace_next(t, r->rq, r->notes);
    if (rc <= 0)
        return rc;
    r->block = 0;
    r->open = r->begun = 1;
    memset(r->places, 0, sizeof r->places);
    memset(r->tids, 0, sizeof r->tids);
    if (!r->sites)
        return 1;
    if (!arrow_stacks_frame(&r->stacks, 0) || (!r->symbols && !(r->symbols = symbols_new(0))) ||
        recorded_load(&r->recorded, t->reader, t->epochs) != 0 ||
        modules_load(&r->modules, t->reader, t->epochs, r->symbols, &r->recorded) != 0)
        return out_of_memory(r);
    struct resolver_options ro = {.eval_start = t->meta.eval_start,
                                  .eval_end = t->meta.eval_end,
                                  .cold_start = t->meta.cold_start,
                                  .cold_end = t->meta.cold_end,
                                  .reader = t->reader,
                                  .meta = &t->meta,
                                  .recorded = &r->recorded};
    r->resolver = resolver_new(t->epochs, &r->modules, &r->stacks.sites, NULL, &ro);
    return r->resolver ? 1 : out_of_memory(r);
}

/* Keeps only the rows within the requested time. */
static void keep_range(struct arrow_rows *r) {
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (r->ts[i] < r->rq->from || r->ts[i] >= r->rq->until)
            continue;
        if (n != i) {
            r->ts[n] = r->ts[i];
            r->mono[n] = r->mono[i];
            r->tid[n] = r->tid[i];
            r->stack[n] = r->stack[i];
            r->pc[n] = r->pc[i];
            r->cpu[n] = r->cpu[i];
            r->count[n] = r->count[i];
            r->flags[n] = r->flags[i];
            r->id[n] = r->id[i];
        }
        n++;
    }
    r->n = n;
}

/* Decodes the next rows of the block. */
static void decode(struct arrow_rows *r) {
    const struct trace_samples to = {r->mono, r->tid, r->stack, r->pc, r->cpu, r->count, r->flags};
    int damaged = 0;

    r->n = trace_samples_next(&r->rows, &to, ARROW_ROWS, &damaged);
    if (damaged)
        reader_damaged(r->t.reader, r->block - 1);
    if (r->n < ARROW_ROWS)
        r->loaded = 0;
    clock_utc_many(&r->t.meta.clock, r->mono, r->ts, r->n);
    for (size_t i = 0; i < r->n; i++)
        r->id[i] = (uint64_t)r->block << 20 | (r->row + i + 1);
    r->row += r->n;
    if (r->rq->from != INT64_MIN || r->rq->until != INT64_MAX)
        keep_range(r);
}

static int resolve_row(struct arrow_rows *r, size_t i) {
    uint64_t h = (r->stack[i] ^ r->pc[i] * 0xff51afd7ed558ccdu) * 0xc4ceb9fe1a85ec53u;
    struct arrow_place *p = &r->places[(h >> 40) % PLACES];
    uint32_t parent;

    if (!p->known || p->stack != r->stack[i] || p->pc != r->pc[i] || p->epoch != r->data.h.epoch ||
        r->modules.nbounds) { /* with nbounds, the result depends on the time too */
        const struct resolver_total *t =
            resolver_stack(r->resolver, r->data.h.epoch, r->stack[i], r->pc[i], r->mono[i], NULL);
        if (!t)
            return -ENOMEM;
        *p = (struct arrow_place){.stack = r->stack[i],
                                  .pc = r->pc[i],
                                  .epoch = r->data.h.epoch,
                                  .site = t->site,
                                  .known = 1};
        if (t->site) {
            p->frame = callsites_site_of(&r->stacks.sites, t->site, &parent);
            if (!arrow_stacks_frame(&r->stacks, p->frame))
                return -ENOMEM;
            if (r->ids && !(p->id = arrow_stacks_id(&r->stacks, t->site)))
                return -ENOMEM;
        }
    }
    r->site[i] = p->site;
    r->frame[i] = p->frame;
    r->stack_id[i] = p->id;
    return 0;
}

static int find_thread(struct arrow_rows *r, size_t i) {
    uint64_t tid = r->tid[i];
    struct threads *all = &r->t.meta.threads;

    if (r->tids[tid % TIDS].tid == tid && r->tids[tid % TIDS].thread) {
        r->thread[i] = r->tids[tid % TIDS].thread - 1;
        return 0;
    }
    const struct thread *t = threads_at(all, tid, r->mono[i]);
    if (!t)
        return -ENOMEM;
    r->thread[i] = (uint32_t)(t - all->t);
    if (!t->next && t->end == UINT64_MAX) { /* otherwise the tid was reused, and the time decides */
        r->tids[tid % TIDS].tid = tid;
        r->tids[tid % TIDS].thread = r->thread[i] + 1;
    }
    return 0;
}

/* Goes on to the next requested block. Returns 1: it is loaded, or there may be more; 0: there are no more; -errno, after arrow_fail(). */
static int next_block(struct arrow_rows *r) {
    int rc;

    if (!r->open || r->block >= reader_blocks(r->t.reader))
        if ((rc = open_trace(r)) <= 0)
            return rc;
    while (r->block < reader_blocks(r->t.reader) &&
           !arrow_trace_wants(&r->t, r->rq, r->block, TRACE_sample))
        r->block++;
    if (r->block == reader_blocks(r->t.reader))
        return 1;
    rc = reader_load(r->t.reader, r->block++, &r->data);
    if (rc == -ENOMEM)
        return out_of_memory(r);
    if (rc == 0) { /* otherwise damaged, which arrow_trace_next() reports when the trace is done */
        r->row = 0;
        r->loaded = 1;
        trace_rows_start(&r->rows, &r->data.h, r->data.data);
    }
    return 1;
}

int arrow_rows_next(struct arrow_rows *r) {
    int rc = 1, err = 0;

    r->n = 0;
    r->begun = 0;
    if (!r->loaded && (rc = next_block(r)) <= 0)
        return rc;
    if (!r->loaded)
        return 1;
    decode(r);
    for (size_t i = 0; r->sites && !err && i < r->n; i++)
        err = resolve_row(r, i);
    for (size_t i = 0; r->threads && !err && i < r->n; i++)
        err = find_thread(r, i);
    return err ? out_of_memory(r) : 1;
}
