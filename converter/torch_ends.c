/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_ends.h"

#include <errno.h>
#include <stdlib.h>

#include "bind.h"
#include "torch_rows.h"

void torch_ends_start(struct torch_ends *e, const struct torch_steps *s, size_t from) {
    e->all = !from;
    e->front = s->n ? torch_steps_front(s) : 0;
}

void torch_ends_begun(struct torch_ends *e, const struct torch_steps *all,
                      const struct torch_step *s, int64_t id) {
    size_t i = (size_t)(s - all->s);

    if (e->all && i <= e->front)
        e->front_last = id;
    if (i + 1 == all->n && !e->last_first)
        e->last_first = id;
}

int torch_ends_call(struct torch_ends *e, uint64_t tid, const struct torch_interval *v,
                    uint64_t end, int begun) {
    if (e->n == e->cap) {
        size_t cap = e->cap * 2 + 16;
        void *more = realloc(e->open, cap * sizeof *e->open);
        if (!more)
            return -ENOMEM;
        e->open = more;
        e->cap = cap;
    }
    e->open[e->n++] = (struct torch_ends_open){*v, tid, end, begun, e->at_end};
    return 0;
}

static int write_calls(struct load *l, const struct torch_ends *e) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        l->db,
        "INSERT OR REPLACE INTO torch_open VALUES(?1,?2,?3,?4,nullif(?5, 0),?6,?7,iif(?8, ?9, NULL),?10,?11,?12,iif(?13, ?14, NULL),?15,?16)",
        -1, &st, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < e->n; i++) {
        const struct torch_ends_open *o = &e->open[i];
        const int64_t v[] = {o->v.id,
                             (int64_t)o->tid,
                             (int64_t)o->v.stage,
                             torch_rows_module(o->v.name, o->v.stage),
                             (int64_t)o->v.call,
                             (int64_t)o->v.tid,
                             clock_utc(&l->meta->clock, o->v.ts),
                             o->v.has_step,
                             (int64_t)o->v.step,
                             (int64_t)o->v.seq,
                             o->v.flags & 4,
                             o->v.inner,
                             o->end != 0,
                             (int64_t)(o->end - o->v.ts),
                             o->begun,
                             o->open};
        for (int k = 0; k < 16; k++)
            sqlite3_bind_int64(st, k + 1, v[k]);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* The first (last 0) or the last interval of the trace. since: where the interval begins that is at that end, without the parts before it. */
static int write_edge(struct load *l, const struct torch_state *t, const struct torch_ends *e,
                      sqlite3_stmt *st, int last) {
    const struct torch_steps *all = &t->steps;
    size_t i = last ? all->n - 1 : e->front;
    const struct torch_step s = torch_steps_whole(&all->s[i]);
    struct clock_map *c = &l->meta->clock;
    int hidden = l->shared.hi && (s.begin > l->shared.hi || (s.end && s.end < l->shared.lo));
    const int64_t v[] = {l->trace,
                         last,
                         t->base + (int64_t)(all->dropped + i) + 1,
                         clock_utc(c, s.begin),
                         clock_utc(c, last ? all->s[i].begin : all->s[0].begin),
                         (int64_t)s.number,
                         (int64_t)all->dropped_number,
                         torch_steps_by_root(s.source) ? TORCH_BY_ROOT : (int)s.source,
                         s.ns[TORCH_FORWARD],
                         s.ns[TORCH_BACKWARD],
                         s.ns[TORCH_OPTIMIZER],
                         s.ns[TORCH_DATA],
                         (int64_t)s.count[TORCH_FORWARD],
                         (int64_t)s.count[TORCH_BACKWARD],
                         (int64_t)s.count[TORCH_OPTIMIZER],
                         (int64_t)s.seq,
                         last ? e->last_first : e->front_last,
                         i == all->n - 1 && i == e->front && e->all,
                         !hidden,
                         (int64_t)(s.end - s.begin),
                         s.told ? clock_utc(c, s.told) : 0};

    for (int k = 0; k < 21; k++)
        if ((k == 19 && !s.end) || (k == 20 && !s.told))
            sqlite3_bind_null(st, k + 1);
        else
            sqlite3_bind_int64(st, k + 1, v[k]);
    return sql_done(st);
}

int torch_ends_write(struct load *l, const struct torch_state *t, const struct torch_ends *e) {
    sqlite3_stmt *st;
    int rc = write_calls(l, e);

    if (rc != SQLITE_OK || !t->steps.n)
        return rc;
    rc = sqlite3_prepare_v2(
        l->db,
        "INSERT OR REPLACE INTO torch_edge VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,0)",
        -1, &st, NULL);
    if (rc == SQLITE_OK && e->all)
        rc = write_edge(l, t, e, st, 0);
    if (rc == SQLITE_OK && e->at_end)
        rc = write_edge(l, t, e, st, 1);
    sqlite3_finalize(st);
    return rc;
}

void torch_ends_free(struct torch_ends *e) {
    free(e->open);
}
