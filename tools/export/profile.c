/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"
#include "steps.h"

#define SLOTS (1u << 16)

struct profile {
    struct profile_row *row; /* hash table of SLOTS rows; thread NULL: empty */
    uint32_t rows;
    const struct export_process *of;
    struct export_steps steps;
    int (*put)(void *ctx, const struct export_process *p, const struct profile_row *row, size_t n);
    void *ctx;
};

/* Passes the table's rows to put(), and empties it. */
static int flush(struct profile *p) {
    size_t n = 0;

    if (p->rows == 0)
        return 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (p->row[i].thread)
            p->row[n++] = p->row[i];
    }
    int rc = p->put(p->ctx, p->of, p->row, n);
    memset(p->row, 0, SLOTS * sizeof *p->row);
    p->rows = 0;
    return rc;
}

static struct profile_row *find(struct profile *p, const struct export_thread *thread,
                                int64_t stack, int64_t step) {
    uint64_t h = ((uint64_t)thread->id * 31 + (uint64_t)stack) * 31 + (uint64_t)step;

    for (uint64_t i = (h * 0x9e3779b97f4a7c15) >> 40;; i++) {
        struct profile_row *r = &p->row[i % SLOTS];
        if (!r->thread) {
            *r = (struct profile_row){.thread = thread, .stack = stack, .step = step};
            p->rows++;
        }
        if (r->thread == thread && r->stack == stack && r->step == step)
            return r;
    }
}

static int add(struct profile *p, struct export *x, const struct export_sample *s) {
    const struct export_thread *t = export_thread(x, s->thread);
    int rc = 0;

    if (!t)
        return 0;
    if (t->process != p->of || p->rows == SLOTS / 4 * 3)
        rc = flush(p);
    p->of = t->process;
    if (rc == 0)
        rc = export_steps_of(x, &p->steps, p->of);
    if (rc < 0)
        return rc;
    struct profile_row *r = find(p, t, s->stack, export_step_at(&p->steps, s->ts));
    r->count += s->count;
    r->wall += s->ns;
    r->cpu += s->flags & 1 ? s->ns : 0;
    return 0;
}

int profile_rows(struct export *x,
                 int (*put)(void *ctx, const struct export_process *p,
                            const struct profile_row *row, size_t n),
                 void *ctx) {
    struct profile p = {.put = put, .ctx = ctx, .row = calloc(SLOTS, sizeof *p.row)};
    struct export_sample s;
    sqlite3_stmt *st = NULL;
    int rc = p.row ? export_samples(x, EXPORT_AS_RECORDED, &st) : -ENOMEM;

    while (rc == 0 && (rc = export_sample(x, st, &s)) > 0)
        rc = add(&p, x, &s);
    if (rc == 0)
        rc = flush(&p);
    sqlite3_finalize(st);
    export_steps_free(&p.steps);
    free(p.row);
    return rc;
}
