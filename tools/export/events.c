/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - turns rows of all kinds into events on tracks (event_sql.c has the SQL). */
#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../traces/hash.h"
#include "../sql_run.h"
#include "event_sql.h"

struct slice {
    int64_t ts, end;
};

/* A track, and the slices that are open on it. */
struct lane {
    struct export_track track;
    struct slice *open; /* innermost last */
    size_t n, cap;
};

struct group { /* tracks that differ only in their lane */
    enum export_kind kind;
    const struct export_process *process;
    const struct export_thread *thread;
    char *name, *unit;
    struct lane **lane;
    size_t nlanes;
    struct group *next; /* next group in the bucket */
};

#define BUCKETS 4096

struct events {
    struct export *x;
    export_track_call *track;
    export_event_call *each;
    void *ctx;
    struct group *group[BUCKETS];
    uint64_t ntracks;
};

static struct group *find_group(struct events *v, const struct group *like) {
    uint64_t h = hash_text(HASH_START, like->name) ^ (uint64_t)like->kind ^
                 (uintptr_t)like->process * 0x9e3779b97f4a7c15ull ^ (uintptr_t)like->thread;
    struct group **at = &v->group[(h ^ h >> 32) % BUCKETS], *g = *at;

    while (g && !(g->kind == like->kind && g->process == like->process &&
                  g->thread == like->thread && strcmp(g->name, like->name) == 0))
        g = g->next;
    if (g || !(g = calloc(1, sizeof *g)))
        return g;
    *g = *like;
    g->name = strdup(like->name);
    g->unit = strdup(like->unit);
    g->next = *at;
    *at = g;
    return g->name && g->unit ? g : NULL;
}

/* Returns whether a slice fits on the lane: within an open slice, or after it. Collectives and steps do not nest: those that overlap ran side
 * by side. An overlap no larger than clocks may differ, 500 parts in a million and a microsecond, is cut from the slice. */
static int fits(struct lane *l, struct slice *s, enum export_kind kind) {
    int nests = kind != EXPORT_COLLECTIVE && kind != EXPORT_STEP;

    while (l->n) {
        const struct slice *top = &l->open[l->n - 1];
        int64_t differ = 1000 + (top->end - top->ts) / 2000;
        if (top->end <= s->ts) {
            l->n--;
        } else if (nests && s->end <= top->end) {
            return 1;
        } else if (top->end - s->ts <= differ) {
            s->ts = top->end;
            s->end = s->end < s->ts ? s->ts : s->end;
            l->n--;
        } else if (nests && s->end - top->end <= differ) {
            s->end = top->end;
            return 1;
        } else {
            return 0;
        }
    }
    return 1;
}

static struct lane *add_lane(struct events *v, struct group *g, int *rc) {
    struct lane *l = calloc(1, sizeof *l);
    struct lane **more = realloc(g->lane, (g->nlanes + 1) * sizeof *more);

    if (more)
        g->lane = more;
    if (!l || !more) {
        free(l);
        *rc = -ENOMEM;
        return NULL;
    }
    l->track = (struct export_track){++v->ntracks, g->kind, g->process,         g->thread,
                                     g->name,      g->unit, (unsigned)g->nlanes};
    g->lane[g->nlanes++] = l;
    *rc = v->track(v->ctx, &l->track);
    return l;
}

/* Returns the track of an event, whose slice may be cut to fit there; NULL with the error in *rc. */
static const struct export_track *place(struct events *v, struct group *g, struct slice *s,
                                        int *rc) {
    struct lane *l = NULL;
    int is_slice = g->kind < EXPORT_MARK;

    *rc = 0;
    for (size_t i = 0; !l && i < g->nlanes; i++) {
        struct slice cut = *s;
        if (!is_slice || fits(g->lane[i], &cut, g->kind)) {
            l = g->lane[i];
            *s = cut;
        }
    }
    if (!l && (!(l = add_lane(v, g, rc)) || *rc < 0))
        return NULL;
    if (is_slice && l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct slice *more = realloc(l->open, cap * sizeof *more);
        if (!more) {
            *rc = -ENOMEM;
            return NULL;
        }
        l->open = more;
        l->cap = cap;
    }
    if (is_slice)
        l->open[l->n++] = *s;
    return &l->track;
}

static int take(struct events *v, enum export_kind kind, sqlite3_stmt *st) {
    const char *flow = (const char *)sqlite3_column_text(st, EVENT_FLOW);
    struct group like = {
        .kind = kind,
        .process = export_process(v->x, sqlite3_column_int64(st, EVENT_TRACE)),
        .thread = export_thread(v->x, sqlite3_column_int64(st, EVENT_THREAD)),
        .name = (char *)export_text(st, EVENT_TRACK),
        .unit = (char *)export_text(st, EVENT_UNIT),
    };
    struct export_event e = {
        .kind = kind,
        .ts = sqlite3_column_int64(st, EVENT_TS),
        .duration = sqlite3_column_int64(st, EVENT_DURATION),
        .open = sqlite3_column_type(st, EVENT_DURATION) == SQLITE_NULL,
        .name = export_text(st, EVENT_NAME),
        .category = export_text(st, EVENT_CATEGORY),
        .value = sqlite3_column_double(st, EVENT_VALUE),
        .flow = flow ? hash_text(HASH_START, flow) >> 1 : 0,
        .place = flow ? (enum export_flow)sqlite3_column_int(st, EVENT_PLACE) : EXPORT_FLOW_NONE,
        .nargs = sqlite3_column_count(st) - EVENT_ARGS,
        .st = st,
    };
    struct group *g;
    int rc;

    if (!like.process ||
        (kind == EXPORT_COUNTER && sqlite3_column_type(st, EVENT_VALUE) == SQLITE_NULL))
        return 0;
    if (e.open)
        e.duration = e.ts < like.process->end ? like.process->end - e.ts : 0;
    struct slice s = {e.ts, e.ts + e.duration};
    if (!(g = find_group(v, &like)))
        return -ENOMEM;
    if (!(e.track = place(v, g, &s, &rc)))
        return rc;
    e.recorded = e.duration;
    e.ts = s.ts;
    e.duration = s.end - s.ts;
    return v->each(v->ctx, &e);
}

static void forget(struct events *v) {
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct group *g = v->group[i], *next; g; g = next) {
            next = g->next;
            for (size_t k = 0; k < g->nlanes; k++) {
                free(g->lane[k]->open);
                free(g->lane[k]);
            }
            free(g->lane);
            free(g->name);
            free(g->unit);
            free(g);
        }
    }
}

int export_events(struct export *x, export_track_call *track, export_event_call *each, void *ctx) {
    struct events *v = calloc(1, sizeof *v);
    enum export_kind kind;
    int rc = v ? 0 : -ENOMEM;
    char *sql;

    if (v)
        *v = (struct events){.x = x, .track = track, .each = each, .ctx = ctx};
    for (unsigned i = 0; rc == 0 && (sql = event_sql(i, &kind)); i++) {
        sqlite3_stmt *st = NULL;
        rc = export_prepare(x, sql, &st);
        while (rc == 0 && (rc = export_step(x, st)) > 0)
            rc = take(v, kind, st);
        sqlite3_finalize(st);
        sqlite3_free(sql);
    }
    if (v)
        forget(v);
    free(v);
    return rc;
}

const char *export_event_arg(const struct export_event *e, int i, struct rows_value *v) {
    *v = sql_run_value(e->st, EVENT_ARGS + i);
    return sqlite3_column_name(e->st, EVENT_ARGS + i);
}
