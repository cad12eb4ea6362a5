/* SPDX-License-Identifier: Apache-2.0 */
#include "load_torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "text.h"
#include "torch_ends.h"
#include "torch_interval.h"
#include "torch_pipe.h"
#include "torch_read.h"
#include "torch_rows.h"
#include "torch_tables.h"

struct job {
    struct load *l;
    sqlite3_stmt *insert;
    struct torch_state at;
    int64_t base;
    struct torch_rows calls;
    struct torch_point *points; /* for the blocks from at.from on */
    size_t npoints;
    size_t keep;   /* the block at whose beginning the state is stored; 0: none */
    uint8_t *kept; /* result of torch_state_save() there */
    size_t nkept;
    struct torch_ends ends;
    struct torch_read read;
    int goes_on; /* 1: the trace may grow, and is read completely */
    /* 1: rows were left out, because there are more than the length of the trace allows */
    int refused;
};

/* Returns 1 when the calls themselves are wanted, and not just the steps. */
static int has_rows(const struct load *l) {
    return !l->shared.types || l->shared.types >> TRACE_torch_calls & 1;
}

/* Makes the row of an interval; end 0: its end is not known. */
static int put(struct job *j, struct torch_open *tc, const struct torch_interval *v, uint64_t end) {
    struct clock_map *c = &j->l->meta->clock;
    const struct vtab_shared *part = &j->l->shared;
    if (part->hi && (v->ts > part->hi || (end && end < part->lo)))
        return torch_rows_leave_out(&j->calls, v->id);
    struct thread *th = threads_at(&j->l->meta->threads, tc->tid, v->ts);
    if (!th)
        return SQLITE_NOMEM;
    if (!reader_allow(j->l->shared.reader, 1)) {
        j->refused = 1;
        return torch_rows_leave_out(&j->calls, v->id);
    }
    if (torch_interval_sum(&j->at, tc, v, end) != 0)
        return SQLITE_NOMEM;
    if ((v->flags & TORCH_CALL_FOLLOWS || j->ends.at_end) &&
        torch_ends_call(&j->ends, tc->tid, v, end, (v->flags & TORCH_CALL_FOLLOWS) != 0) != 0)
        return SQLITE_NOMEM;
    if (!has_rows(j->l) || (end && end < j->at.since))
        return torch_rows_leave_out(&j->calls, v->id);
    const struct torch_row row = {
        .id = v->id,
        .ts = clock_utc(c, v->ts),
        .has_duration = end != 0,
        .duration = (int64_t)(end - v->ts),
        .thread = th - j->l->meta->threads.t + 1,
        .stage = (uint8_t)v->stage,
        .module = torch_rows_module(v->name, v->stage),
        .call = (int64_t)v->call,
        .parent = v->parent ? v->id - v->parent : 0,
        .depth = v->depth,
        .flags = v->flags & ~TORCH_CALL_FOLLOWS,
        .has_step = (uint8_t)v->has_step,
        .step = (int64_t)v->step,
        .seq = (int64_t)v->seq,
        .call_tid = v->tid == tc->tid ? 0 : (int64_t)v->tid,
    };
    return torch_rows_put(&j->calls, &row);
}

/* Adds the time of an interval to its part of the step, and subtracts it from the part of the enclosing interval. */
static void account(struct job *j, const struct torch_open *tc, const struct torch_interval *v,
                    uint64_t end) {
    struct torch_step *s = torch_steps_at(&j->at.steps, v->ts);
    int64_t ns = (int64_t)(end - v->ts);
    int other = s && s->tid && tc->tid != s->tid;
    if (!s || v->part < 0 || (other && !torch_interval_is_engines(tc, v)))
        return;
    if (other)
        s->ns[TORCH_BACKWARD] -= ns;
    s->ns[v->part] += ns;
    s->count[v->part] += v->part != TORCH_FORWARD || !j->at.nmodels ||
                         (v->name < j->at.nmodels && j->at.models[v->name]);
    for (uint32_t i = tc->n; i-- > 0;)
        if (&tc->open[i] < v && tc->open[i].part >= 0) {
            s->ns[tc->open[i].part] -= ns;
            break;
        }
}

static int close_top(struct job *j, struct torch_open *tc, uint64_t end, unsigned flags) {
    if (tc->beyond) {
        tc->beyond--;
        return SQLITE_OK;
    }
    if (!tc->n)
        return SQLITE_OK;
    struct torch_interval *v = &tc->open[tc->n - 1];
    if (flags & TORCH_FAILED)
        v->flags |= TORCH_CALL_FAILED;
    if (end)
        account(j, tc, v, end);
    if (end && v->stage == STAGE_PASS)
        j->at.pass_end = end;
    tc->n--;
    return put(j, tc, v, end);
}

/* Returns the place of the next interval of the thread. NULL: too many are open, or there is no memory, which torch_rows_end() returns. */
static struct torch_interval *next_open(struct job *j, struct torch_open *tc) {
    if (tc->n == TORCH_DEPTH) {
        tc->beyond++;
        return NULL;
    }
    if (torch_state_room(tc) != 0) {
        j->calls.rc = SQLITE_NOMEM;
        return NULL;
    }
    return &tc->open[tc->n];
}

/* Opens the interval that next_open() returned a place for. */
static void open_it(struct job *j, struct torch_open *tc) {
    struct torch_interval *v = &tc->open[tc->n];
    struct torch_step *s = torch_steps_at(&j->at.steps, v->ts);
    if (s) {
        v->has_step = s->source != TORCH_EVALUATION;
        v->flags |= v->has_step ? 0 : TORCH_CALL_EVALUATION;
        v->step = s->number;
        v->seq = s->seq;
        for (const struct torch_step *p = s; (p = torch_steps_part(p)) != NULL;)
            v->seq += p->seq;
        s->seq += v->stage <= STAGE_BACKWARD && !(v->flags & TORCH_CALL_FOLLOWS);
        torch_ends_begun(&j->ends, &j->at.steps, s, j->base + j->calls.begun + 1);
    }
    v->part = torch_interval_part(tc, v->stage);
    for (uint32_t i = tc->n; i-- > 0 && tc->open[i].stage != STAGE_PASS;) {
        /* on a thread of the autograd engine, where no pass is open */
        if (tc->open[i].stage == STAGE_BACKWARD && v->stage == STAGE_FORWARD)
            v->flags |= TORCH_CALL_AGAIN;
        if (tc->open[i].stage == v->stage) {
            v->flags |= tc->open[i].flags & TORCH_CALL_AGAIN;
            v->parent = tc->open[i].id;
            v->depth = tc->open[i].depth + 1;
            break;
        }
    }
    v->id = torch_rows_begin(&j->calls);
    tc->n++;
}

static void begin(struct job *j, struct torch_open *tc, const struct torch_item *e) {
    struct torch_interval *v = next_open(j, tc);
    int is_call = e->kind == TORCH_ENTER || e->kind == TORCH_AGAIN;

    if (v) {
        torch_interval_begin(v, tc, e->kind, e);
        v->call = is_call ? tc->next_call : v->call;
        open_it(j, tc);
    }
    tc->next_call += (uint64_t)is_call;
}

/* Handles an interval that a record, at its beginning, says is open. If it is not open here too, something was lost in between: closes what
 * differs, and opens it. is_first: this is the thread's first record in the trace. */
static int reopen(struct job *j, struct torch_open *tc, uint32_t *at, const struct torch_item *e,
                  int is_first) {
    struct torch_interval v, *to;
    int rc = SQLITE_OK;
    torch_interval_begin(&v, tc, (unsigned)e->c, e);
    v.flags |= is_first ? TORCH_CALL_FOLLOWS : 0;
    j->at.follows |= is_first;
    v.call = e->a;
    v.tid = e->b;
    if (*at < tc->n) {
        const struct torch_interval *o = &tc->open[*at];
        if (o->stage == v.stage && o->name == v.name && o->call == v.call && o->tid == v.tid) {
            ++*at;
            return SQLITE_OK;
        }
    }
    while (tc->n > *at && rc == SQLITE_OK)
        rc = close_top(j, tc, 0, 0);
    if ((to = next_open(j, tc))) {
        *to = v;
        open_it(j, tc);
    }
    ++*at;
    return rc;
}

static int take_calls(struct job *j, const struct trace_value *v) {
    struct torch_open *tc = torch_state_thread(&j->at, v[TRACE_torch_calls_tid].u);
    struct torch_decode d;
    struct torch_item e;
    uint32_t at = 0;
    if (!tc)
        return SQLITE_NOMEM;
    int opening = 1, is_first = !j->at.from && !tc->next_call, rc = SQLITE_OK;
    tc->next_call = v[TRACE_torch_calls_call].u;
    tc->beyond = 0;
    torch_decode_start(&d, v[TRACE_torch_calls_ts].u, v[TRACE_torch_calls_events].p,
                       v[TRACE_torch_calls_events].n);
    while (rc == SQLITE_OK && torch_decode_next(&d, &e) > 0) {
        if (e.kind == TORCH_OPEN && opening) {
            rc = reopen(j, tc, &at, &e, is_first);
            continue;
        }
        for (; opening && tc->n > at && rc == SQLITE_OK;)
            rc = close_top(j, tc, 0, 0);
        opening = 0;
        switch (e.kind) {
        case TORCH_ENTER:
        case TORCH_AGAIN:
        case TORCH_BACK:
        case TORCH_BACK_AT:
        case TORCH_SPAN:
            begin(j, tc, &e);
            break;
        case TORCH_EXIT:
            rc = close_top(j, tc, e.ts, (unsigned)e.arg);
            break;
        }
    }
    if (!tc->n)
        torch_state_none(tc);
    return rc;
}

static int take_steps(struct job *j, const struct trace_value *v) {
    struct torch_point *p = &j->points[j->npoints - 1];
    struct torch_decode d;
    struct torch_item e;
    int err = 0;
    if (!j->at.from && !j->at.steps.n) {
        /* A thread that was blocked meanwhile may come with an old record. */
        if (v[TRACE_torch_calls_step].u > j->at.steps.dropped_number)
            j->at.steps.dropped_number = v[TRACE_torch_calls_step].u;
        j->at.follows |= v[TRACE_torch_calls_step].u > 0 ||
                         (!j->at.steps.first && v[TRACE_torch_calls_call].u > 1);
    }
    torch_decode_start(&d, v[TRACE_torch_calls_ts].u, v[TRACE_torch_calls_events].p,
                       v[TRACE_torch_calls_events].n);
    while (!err && torch_decode_next(&d, &e) > 0) {
        if (e.kind == TORCH_STEP && !reader_allow(j->l->shared.reader, 1)) {
            j->refused = 1;
            break;
        }
        j->at.most = e.ts > j->at.most ? e.ts : j->at.most;
        if (e.kind != TORCH_OPEN && e.ts < p->least)
            p->least = e.ts;
        err = torch_steps_event(&j->at.steps, v[TRACE_torch_calls_tid].u, &e);
        if (!err && e.kind != TORCH_OPEN &&
            torch_steps_waits(&j->at.steps, v[TRACE_torch_calls_tid].u)) {
            torch_decode_pass(&d);
            j->at.most = d.ts > j->at.most ? d.ts : j->at.most;
        }
    }
    return err ? SQLITE_NOMEM : SQLITE_OK;
}

static int note_point(struct job *j, size_t block) {
    const struct torch_steps *s = &j->at.steps;
    if (!j->goes_on)
        j->npoints = 0;
    j->points[j->npoints++] = (struct torch_point){.steps = *s,
                                                   .from = block,
                                                   .end = s->n ? s->s[s->n - 1].end : 0,
                                                   .most = j->at.most,
                                                   .least = UINT64_MAX};
    return SQLITE_OK;
}

/*
 * Chooses the block from which a later conversion will continue: the end of a step lies after its beginning, and nothing before it is later
 * than that end. Then later records are unlikely to be about what comes before it.
 */
static void choose_point(struct job *j) {
    const struct torch_steps *s = &j->at.steps;
    uint64_t told = 0;
    size_t i = j->npoints;
    for (size_t k = 0; k < s->n; k++) {
        if (k && s->s[k].end <= s->s[k - 1].end)
            return; /* the steps were not recorded in order */
        told = s->s[k].told > told ? s->s[k].told : told;
    }
    if (!j->goes_on)
        return;
    while (i > 1 && j->points[i - 1].most >= told)
        i--;
    j->keep = i ? j->points[i - 1].from : 0;
}

static int keep_point(struct job *j, size_t block) {
    if (!j->keep || block != j->keep)
        return SQLITE_OK;
    const struct torch_point *p = &j->points[block - j->points->from];
    uint64_t later = UINT64_MAX;
    for (const struct torch_point *q = p; q < j->points + j->npoints; q++)
        later = q->least < later ? q->least : later;
    j->at.begun = j->calls.begun;
    j->kept = torch_state_save(&j->at, p, later, &j->nkept);
    return !j->kept && j->nkept ? SQLITE_NOMEM : SQLITE_OK;
}

/* Marks a module as a model. When its calls were counted before as those of no model, the trace must be read anew. */
static int note_model(struct job *j, uint64_t name) {
    int known = name < j->at.nmodels && j->at.models[name];

    j->at.steps.missed |= j->at.from && !known && (!j->at.nmodels || name <= j->at.names);
    return torch_state_model(&j->at, name) == 0 ? SQLITE_OK : SQLITE_NOMEM;
}

static int take_name(struct job *j, const struct trace_value *v) {
    const struct trace_value *n = &v[TRACE_torch_name_name], *t = &v[TRACE_torch_name_type];
    if (v[TRACE_torch_name_number].u >= TORCH_ROWS_NAMES)
        return SQLITE_OK;
    char *name = text_utf8((const char *)n->p, n->n, NULL);
    char *type = text_utf8((const char *)t->p, t->n, NULL);
    int rc = name && type ? SQLITE_OK : SQLITE_NOMEM;
    if (rc == SQLITE_OK && v[TRACE_torch_name_model].u)
        rc = note_model(j, v[TRACE_torch_name_number].u);
    if (v[TRACE_torch_name_number].u > j->at.names)
        j->at.names = v[TRACE_torch_name_number].u;
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(j->insert, 1,
                           j->base + torch_rows_module(v[TRACE_torch_name_number].u, 0));
        sqlite3_bind_int64(j->insert, 2,
                           j->base + torch_rows_module(v[TRACE_torch_name_number].u, 1));
        sqlite3_bind_text(j->insert, 3, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(j->insert, 4, type, -1, SQLITE_STATIC);
        rc = sql_done(j->insert);
    }
    free(name);
    free(type);
    return rc;
}

/* before: called for each block, before its records. */
static int each(struct job *j, size_t from, int record, int (*before)(struct job *, size_t),
                int (*take)(struct job *, const struct trace_value *)) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int rc = SQLITE_OK;
    for (size_t i = from; rc == SQLITE_OK && i < reader_blocks(j->l->shared.reader); i++) {
        if (before)
            rc = before(j, i);
        if (rc != SQLITE_OK)
            break;
        int err = torch_read_block(&j->read, i, record, &rows);
        if (err == -ENOMEM)
            rc = SQLITE_NOMEM;
        if (err)
            continue;
        while (rc == SQLITE_OK && trace_rows_next(&rows, 1ull << record, v) > 0)
            rc = take(j, v);
    }
    return rc;
}

/*
 * Returns the end of the innermost interval of a thread that is still open at the end; 0: it is not known. A thread of the autograd engine
 * learns that a pass is over only when the next one comes.
 */
static uint64_t last_end(const struct job *j, const struct torch_open *tc) {
    const struct torch_interval *v = &tc->open[tc->n - 1];
    for (uint32_t i = 0; i < tc->n; i++)
        if (tc->open[i].stage != STAGE_BACKWARD)
            return 0;
    return j->at.pass_end > v->ts ? j->at.pass_end : 0;
}

/* Returns 1 when the process's recording goes on in another file. */
static int is_rotated(const struct load *l) {
    return l->meta->end_reason && strcmp(l->meta->end_reason, "rotated") == 0;
}

/* Makes the rows of the calls that are read now; runs in a thread of its own when they go into a pipe. */
static int make_calls(void *ctx, struct torch_pipe *pipe) {
    struct job *j = ctx;
    struct load *l = j->l;
    int rows = has_rows(l), rc = torch_rows_start(&j->calls, rows && !pipe ? l->db : NULL,
                                                  rows ? pipe : NULL, j->base, j->at.begun);

    if (rc == SQLITE_OK)
        rc = each(j, j->at.from, TRACE_torch_calls, keep_point, take_calls);
    j->ends.at_end = is_rotated(l);
    for (size_t i = 0; i < j->at.nthreads; i++)
        while (rc == SQLITE_OK && j->at.threads[i]->n)
            rc = close_top(j, j->at.threads[i], last_end(j, j->at.threads[i]), 0);
    if (j->calls.wait) {
        int ended = torch_rows_end(&j->calls);
        rc = rc == SQLITE_OK ? ended : rc;
    }
    return rc;
}

/* Loads the names, steps and calls of the blocks that are read now. */
static int load_calls(struct job *j) {
    struct load *l = j->l;
    size_t from = j->at.from, first = from ? l->shared.first : 0;
    int rc = sqlite3_prepare_v2(
        l->db,
        "INSERT OR REPLACE INTO torch_module VALUES(?1, ?3 || ' forward', ?3, ?4), (?2, ?3 || ' backward', ?3, ?4)",
        -1, &j->insert, NULL);
    if (rc == SQLITE_OK)
        rc = each(j, first, TRACE_torch_name, NULL, take_name);
    sqlite3_finalize(j->insert);
    uint64_t was = j->at.most;
    if (rc == SQLITE_OK)
        rc = each(j, from, TRACE_torch_calls, note_point, take_steps);
    j->at.most = was;
    if (rc == SQLITE_OK)
        choose_point(j);
    if (rc == SQLITE_OK && torch_steps_ready(&j->at.steps))
        rc = SQLITE_NOMEM;
    if (rc != SQLITE_OK || !torch_state_known(&j->at))
        return rc;
    torch_ends_start(&j->ends, &j->at.steps, from);
    if (l->shared.first)
        rc = torch_tables_forget(l, &j->at);
    if (rc == SQLITE_OK && l->shared.types & VTAB_LAST_CALLS && !from)
        rc = torch_tables_last(l, &j->at);
    if (rc != SQLITE_OK)
        return rc;
    return has_rows(l) ? torch_pipe_run(l, make_calls, j) : make_calls(j, NULL);
}

/* was: result of torch_state_save() when the trace was read before. *again: set when rows written then would have to change. */
static int load_from(struct load *l, const uint8_t *was, size_t n, int *again) {
    struct job j = {.l = l,
                    .base = (int64_t)((uint64_t)l->trace << 40),
                    .read.reader = l->shared.reader,
                    .goes_on = !l->shared.hi && !l->meta->end_reason};
    size_t blocks = reader_blocks(l->shared.reader);
    int rc = SQLITE_OK, err = 0;

    *again = 0;
    j.at.base = j.base;
    if (was)
        err = torch_state_restore(&j.at, was, n);
    if (err == 0 && j.at.from > l->shared.first)
        err = -EBADMSG;
    if (err == -EBADMSG) {
        *again = 1;
        goto out;
    }
    j.points = err ? NULL : malloc((j.goes_on ? blocks + 1 : 1) * sizeof *j.points);
    rc = j.points ? load_calls(&j) : SQLITE_NOMEM;
    *again = was && (j.at.steps.missed || !j.calls.base);
    if (rc == SQLITE_OK && !*again)
        rc = torch_tables_write(l, &j.at);
    if (rc == SQLITE_OK && !*again && (j.at.follows || is_rotated(l)))
        rc = torch_ends_write(l, &j.at, &j.ends);
    if (rc == SQLITE_OK && !*again && j.kept && !j.refused)
        rc = torch_tables_keep(l, j.kept, j.nkept);
out:
    torch_state_free(&j.at);
    free(j.points);
    free(j.kept);
    torch_ends_free(&j.ends);
    torch_read_free(&j.read);
    return rc;
}

int load_torch(struct load *l) {
    uint8_t *was = NULL;
    size_t n = 0;
    int again = 0, rc = SQLITE_OK;

    if (!torch_tables_any(l->shared.reader))
        return SQLITE_OK;
    if (l->shared.first)
        rc = torch_tables_kept(l, &was, &n);
    if (rc == SQLITE_OK)
        rc = load_from(l, was, n, &again);
    if (rc == SQLITE_OK && again)
        rc = load_from(l, NULL, 0, &again);
    free(was);
    return rc;
}
