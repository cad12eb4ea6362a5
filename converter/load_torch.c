/* SPDX-License-Identifier: Apache-2.0 */
#include "load_torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "text.h"
#include "torch_rows.h"
#include "torch_steps.h"

#define DEPTH      512
#define MOST_NAMES (1u << 24)

/* As torch_call.stage in schema/36_torch.sql. */
enum stage { STAGE_FORWARD, STAGE_BACKWARD, STAGE_PASS, STAGE_OPTIMIZER, STAGE_DATA };
enum { FLAG_FAILED = 1, FLAG_AGAIN = 2, FLAG_EVALUATION = 4 };

struct interval {
    uint64_t ts;
    int64_t id, parent; /* row ids; parent 0: none */
    uint64_t name, call, tid;
    uint64_t step, seq;
    int64_t inner; /* ns of those that lie in it */
    uint32_t depth;
    int has_step;
    enum stage stage;
    unsigned flags;
    int part; /* enum torch_part whose time it is, -1: that of what it lies in */
};

/* What one thread has open. */
struct lane {
    uint64_t tid, next_call;
    struct interval open[DEPTH];
    uint32_t n, beyond; /* beyond: deeper than DEPTH, not kept */
};

/* What the calls of one module and stage add up to. */
struct module_sum {
    int64_t calls, timed, ns, self_ns, longest;
};

struct job {
    struct load *l;
    sqlite3_stmt *insert;
    struct torch_steps steps;
    struct lane **lanes;
    size_t threads_made;
    int64_t base;
    struct torch_rows calls;
    uint8_t *models;    /* by name: whether that module is one (torch_name.model) */
    size_t nmodels;     /* 0: an older trace, nobody knows */
    uint64_t pass_end;  /* when the last backward pass so far ended */
    struct keys summed; /* name, stage -> sums[id - 1] */
    struct module_sum *sums;
    size_t sums_cap;
};

static int done(sqlite3_stmt *st) {
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static struct lane *lane(struct job *j, uint64_t tid) {
    for (size_t i = 0; i < j->threads_made; i++)
        if (j->lanes[i]->tid == tid)
            return j->lanes[i];
    void *more = realloc(j->lanes, (j->threads_made + 1) * sizeof *j->lanes);
    struct lane *n = more ? calloc(1, sizeof *n) : NULL;
    if (more)
        j->lanes = more;
    if (!n)
        return NULL;
    n->tid = tid;
    j->lanes[j->threads_made++] = n;
    return n;
}

/* Table torch_module_total. 0 or -ENOMEM. */
static int add_up(struct job *j, struct lane *ln, const struct interval *v, uint64_t end) {
    uint64_t key[2] = {v->name, v->stage};
    int64_t ns = (int64_t)(end - v->ts);
    int is_new;

    if (v->stage > STAGE_BACKWARD)
        return 0;
    uint32_t id = keys_put(&j->summed, key, sizeof key, &is_new);
    if (id > j->sums_cap) {
        size_t cap = j->sums_cap * 2 + 64;
        void *p = realloc(j->sums, cap * sizeof *j->sums);
        if (!p)
            return -ENOMEM;
        j->sums = p;
        j->sums_cap = cap;
    }
    if (!id)
        return -ENOMEM;
    struct module_sum *s = &j->sums[id - 1];
    if (is_new)
        *s = (struct module_sum){0};
    s->calls++;
    if (!end)
        return 0;
    s->timed++;
    s->ns += ns;
    s->self_ns += ns - v->inner;
    s->longest = ns > s->longest ? ns : s->longest;
    for (uint32_t i = ln->n; v->parent && i-- > 0;)
        if (ln->open[i].id == v->parent) {
            ln->open[i].inner += ns;
            break;
        }
    return 0;
}

static int write_sums(struct job *j) {
    int rc =
        sqlite3_prepare_v2(j->l->db, "INSERT INTO torch_module_total VALUES(?,?,?,?,?,?,?,?,0,0)",
                           -1, &j->insert, NULL);

    for (uint32_t id = 1; rc == SQLITE_OK && id <= j->summed.n; id++) {
        const uint64_t *key = keys_key(&j->summed, id, NULL);
        const struct module_sum *s = &j->sums[id - 1];
        const int64_t v[] = {j->l->trace,     j->base + (int64_t)key[0],
                             (int64_t)key[1], s->calls,
                             s->timed,        s->ns,
                             s->self_ns,      s->longest};
        for (int i = 0; i < 8; i++)
            sqlite3_bind_int64(j->insert, i + 1, v[i]);
        rc = done(j->insert);
    }
    sqlite3_finalize(j->insert);
    return rc;
}

/* end 0: not known. */
static int put(struct job *j, struct lane *ln, const struct interval *v, uint64_t end) {
    struct clock_map *c = &j->l->meta->clock;
    const struct vtab_shared *part = &j->l->shared;
    if (part->hi && (v->ts > part->hi || (end && end < part->lo)))
        return torch_rows_leave_out(&j->calls, v->id);
    struct thread *th = threads_at(&j->l->meta->threads, ln->tid, v->ts);
    if (!th)
        return SQLITE_NOMEM;
    if (!reader_allow(j->l->shared.reader, 1))
        return torch_rows_leave_out(&j->calls, v->id);
    if (add_up(j, ln, v, end) != 0)
        return SQLITE_NOMEM;
    const struct torch_row row = {
        .id = v->id,
        .ts = clock_utc(c, v->ts),
        .has_duration = end != 0,
        .duration = (int64_t)(end - v->ts),
        .thread = th - j->l->meta->threads.t + 1,
        .stage = (uint8_t)v->stage,
        .module = (int64_t)v->name,
        .call = (int64_t)v->call,
        .parent = v->parent ? v->id - v->parent : 0,
        .depth = v->depth,
        .flags = v->flags,
        .has_step = (uint8_t)v->has_step,
        .step = (int64_t)v->step,
        .seq = (int64_t)v->seq,
        .call_tid = v->tid == ln->tid ? 0 : (int64_t)v->tid,
    };
    return torch_rows_put(&j->calls, &row);
}

/* The time of a step's parts: an interval's own goes to its part, and is taken from the part that it lies in. */
static void account(struct job *j, const struct lane *ln, const struct interval *v, uint64_t end) {
    struct torch_step *s = torch_steps_at(&j->steps, v->ts);
    int64_t ns = (int64_t)(end - v->ts);
    if (!s || v->part < 0 || (j->steps.leader && ln->tid != j->steps.leader))
        return;
    s->ns[v->part] += ns;
    s->count[v->part] +=
        v->part != TORCH_FORWARD || !j->nmodels || (v->name < j->nmodels && j->models[v->name]);
    for (uint32_t i = ln->n; i-- > 0;)
        if (&ln->open[i] < v && ln->open[i].part >= 0) {
            s->ns[ln->open[i].part] -= ns;
            break;
        }
}

static int close_top(struct job *j, struct lane *ln, uint64_t end, unsigned flags) {
    if (ln->beyond) {
        ln->beyond--;
        return SQLITE_OK;
    }
    if (!ln->n)
        return SQLITE_OK;
    struct interval *v = &ln->open[ln->n - 1];
    if (flags & TORCH_FAILED)
        v->flags |= FLAG_FAILED;
    if (end)
        account(j, ln, v, end);
    if (end && v->stage == STAGE_PASS)
        j->pass_end = end;
    ln->n--;
    return put(j, ln, v, end);
}

/* Which part's time it is: an outermost forward call, a pass, an optimizer, a wait. Within a pass all is backward. */
static int part_of(const struct lane *ln, enum stage stage) {
    static const int part[] = {TORCH_FORWARD, -1, TORCH_BACKWARD, TORCH_OPTIMIZER, TORCH_DATA};
    for (uint32_t i = ln->n; i-- > 0;) {
        int around = ln->open[i].part;
        if (around == part[stage] || around == TORCH_BACKWARD || around == TORCH_DATA)
            return -1;
        if (around == TORCH_FORWARD && stage == STAGE_FORWARD)
            return -1;
    }
    return part[stage];
}

static void open_one(struct job *j, struct lane *ln, struct interval v) {
    struct torch_step *s = torch_steps_at(&j->steps, v.ts);
    if (ln->n == DEPTH) {
        ln->beyond++;
        return;
    }
    if (s) {
        v.has_step = s->source != TORCH_EVALUATION;
        v.flags |= v.has_step ? 0 : FLAG_EVALUATION;
        v.step = s->number;
        v.seq = s->seq;
        s->seq += v.stage <= STAGE_BACKWARD;
    }
    v.part = part_of(ln, v.stage);
    for (uint32_t i = ln->n; i-- > 0 && ln->open[i].stage != STAGE_PASS;)
        if (ln->open[i].stage == v.stage) {
            v.parent = ln->open[i].id;
            v.depth = ln->open[i].depth + 1;
            break;
        }
    v.id = torch_rows_begin(&j->calls);
    ln->open[ln->n++] = v;
}

/* kind: what it began with. */
static struct interval interval_of(const struct lane *ln, unsigned kind,
                                   const struct torch_item *e) {
    struct interval v = {.ts = e->ts, .name = e->arg};
    if (kind == TORCH_SPAN) {
        v.stage = e->arg == TORCH_SPAN_OPTIMIZER ? STAGE_OPTIMIZER
                  : e->arg == TORCH_SPAN_DATA    ? STAGE_DATA
                                                 : STAGE_PASS;
    } else if (kind == TORCH_BACK || kind == TORCH_BACK_AT) {
        v.stage = STAGE_BACKWARD;
        v.call = kind == TORCH_BACK ? ln->next_call - e->a : e->b;
        v.tid = kind == TORCH_BACK ? 0 : e->a;
    } else {
        v.stage = STAGE_FORWARD;
        v.flags = kind == TORCH_AGAIN ? FLAG_AGAIN : 0;
    }
    return v;
}

/* Said at the beginning of a record: is it what we have, too? Else something was lost between. */
static int reopen(struct job *j, struct lane *ln, uint32_t *at, const struct torch_item *e) {
    struct interval v = interval_of(ln, (unsigned)e->c, e);
    int rc = SQLITE_OK;
    v.call = e->a;
    v.tid = e->b;
    if (*at < ln->n) {
        const struct interval *o = &ln->open[*at];
        if (o->stage == v.stage && o->name == v.name && o->call == v.call && o->tid == v.tid) {
            ++*at;
            return SQLITE_OK;
        }
    }
    while (ln->n > *at && rc == SQLITE_OK)
        rc = close_top(j, ln, 0, 0);
    open_one(j, ln, v);
    ++*at;
    return rc;
}

static int take_calls(struct job *j, const struct trace_value *v) {
    struct lane *ln = lane(j, v[TRACE_torch_calls_tid].u);
    struct torch_decode d;
    struct torch_item e;
    uint32_t at = 0;
    int opening = 1, rc = SQLITE_OK;
    if (!ln)
        return SQLITE_NOMEM;
    ln->next_call = v[TRACE_torch_calls_call].u;
    ln->beyond = 0;
    torch_decode_start(&d, v[TRACE_torch_calls_ts].u, v[TRACE_torch_calls_events].p,
                       v[TRACE_torch_calls_events].n);
    while (rc == SQLITE_OK && torch_decode_next(&d, &e) > 0) {
        if (e.kind == TORCH_OPEN && opening) {
            rc = reopen(j, ln, &at, &e);
            continue;
        }
        for (; opening && ln->n > at && rc == SQLITE_OK;)
            rc = close_top(j, ln, 0, 0);
        opening = 0;
        struct interval one = interval_of(ln, e.kind, &e);
        switch (e.kind) {
        case TORCH_ENTER:
        case TORCH_AGAIN:
            one.call = ln->next_call++;
            open_one(j, ln, one);
            break;
        case TORCH_BACK:
        case TORCH_BACK_AT:
        case TORCH_SPAN:
            open_one(j, ln, one);
            break;
        case TORCH_EXIT:
            rc = close_top(j, ln, e.ts, (unsigned)e.arg);
            break;
        }
    }
    return rc;
}

static int take_steps(struct job *j, const struct trace_value *v) {
    struct torch_decode d;
    struct torch_item e;
    int err = 0;
    torch_decode_start(&d, v[TRACE_torch_calls_ts].u, v[TRACE_torch_calls_events].p,
                       v[TRACE_torch_calls_events].n);
    while (!err && torch_decode_next(&d, &e) > 0 &&
           (e.kind != TORCH_STEP || reader_allow(j->l->shared.reader, 1)))
        err = torch_steps_event(&j->steps, v[TRACE_torch_calls_tid].u, &e);
    return err ? SQLITE_NOMEM : SQLITE_OK;
}

static int note_model(struct job *j, uint64_t name) {
    if (name >= j->nmodels) {
        size_t n = (size_t)name * 2 + 64;
        uint8_t *more = name < MOST_NAMES ? realloc(j->models, n) : NULL;
        if (!more)
            return name < MOST_NAMES ? SQLITE_NOMEM : SQLITE_OK;
        memset(more + j->nmodels, 0, n - j->nmodels);
        j->models = more;
        j->nmodels = n;
    }
    j->models[name] = 1;
    return SQLITE_OK;
}

static int take_name(struct job *j, const struct trace_value *v) {
    char *name =
        text_utf8((const char *)v[TRACE_torch_name_name].p, v[TRACE_torch_name_name].n, NULL);
    char *type =
        text_utf8((const char *)v[TRACE_torch_name_type].p, v[TRACE_torch_name_type].n, NULL);
    int rc = SQLITE_NOMEM;
    if (name && type)
        rc = v[TRACE_torch_name_model].u ? note_model(j, v[TRACE_torch_name_number].u) : SQLITE_OK;
    if (name && type && rc == SQLITE_OK) {
        sqlite3_bind_int64(j->insert, 1, j->base + (int64_t)v[TRACE_torch_name_number].u);
        sqlite3_bind_text(j->insert, 2, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(j->insert, 3, type, -1, SQLITE_STATIC);
        rc = done(j->insert);
    }
    free(name);
    free(type);
    return rc;
}

static int each(struct job *j, int record, int (*take)(struct job *, const struct trace_value *)) {
    struct reader *r = j->l->shared.reader;
    struct reader_data data = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < reader_blocks(r); i++) {
        int err = reader_block(r, i)->types >> record & 1 ? reader_load(r, i, &data) : -ENOENT;
        if (err == -ENOMEM)
            rc = SQLITE_NOMEM;
        if (err)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (rc == SQLITE_OK && trace_rows_next(&rows, 1ull << record, v) > 0)
            rc = take(j, v);
    }
    reader_data_free(&data);
    return rc;
}

static int write_steps(struct job *j) {
    struct clock_map *c = &j->l->meta->clock;
    int rc = sqlite3_prepare_v2(
        j->l->db, "INSERT INTO torch_step VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)", -1, &j->insert, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < j->steps.n; i++) {
        const struct torch_step *s = &j->steps.s[i];
        if (!s->end && !s->seq && !s->ns[TORCH_DATA])
            continue; /* nothing came after the last end */
        if (j->l->shared.hi && (s->begin > j->l->shared.hi || (s->end && s->end < j->l->shared.lo)))
            continue;
        sqlite3_bind_int64(j->insert, 1, j->base + (int64_t)i + 1);
        sqlite3_bind_int64(j->insert, 2, clock_utc(c, s->begin));
        if (s->end)
            sqlite3_bind_int64(j->insert, 3, (int64_t)(s->end - s->begin));
        else
            sqlite3_bind_null(j->insert, 3);
        sqlite3_bind_int64(j->insert, 4, (int64_t)s->number);
        sqlite3_bind_int(j->insert, 5, (int)s->source);
        for (int k = 0; k < TORCH_PARTS; k++)
            sqlite3_bind_int64(j->insert, 6 + k, s->ns[k]);
        for (int k = 0; k < TORCH_OPTIMIZER + 1; k++)
            sqlite3_bind_int64(j->insert, 10 + k, (int64_t)s->count[k]);
        if (s->told)
            sqlite3_bind_int64(j->insert, 13, clock_utc(c, s->told));
        else
            sqlite3_bind_null(j->insert, 13);
        rc = done(j->insert);
    }
    sqlite3_finalize(j->insert);
    return rc;
}

/* Rows that were filed under the numbers of what turned out to be evaluation: of no step, or of the first, which had begun. */
static int correct_numbers(struct job *j) {
    static const char *const tables[] = {"memory_step", "variable", "event", "trigger_event"};
    struct clock_map *c = &j->l->meta->clock;
    const struct torch_step *s = j->steps.s, *first = s;
    char *sql;
    int rc = SQLITE_OK;
    while (first < s + j->steps.n && first->source == TORCH_EVALUATION)
        first++;
    for (int i = 0; first > s && i < 4 && rc == SQLITE_OK; i++) {
        sql = sqlite3_mprintf("UPDATE %s SET step = CASE WHEN ts > %lld THEN %lld END"
                              " WHERE id > %lld AND id <= %lld AND ts <= %lld",
                              tables[i], clock_utc(c, first[-1].end), (long long)first->number,
                              (long long)j->base, (long long)(j->base | 0xffffffffffll),
                              clock_utc(c, first->end ? first->end : INT64_MAX));
        rc = sql ? sqlite3_exec(j->l->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    return rc;
}

/*
 * When the innermost interval ended that is open at the end; 0: not known. A thread of the engine's own learns that a pass is over when
 * the next one comes.
 */
static uint64_t last_end(const struct job *j, const struct lane *ln) {
    const struct interval *v = &ln->open[ln->n - 1];
    for (uint32_t i = 0; i < ln->n; i++)
        if (ln->open[i].stage != STAGE_BACKWARD)
            return 0;
    return j->pass_end > v->ts ? j->pass_end : 0;
}

static int has_any(struct reader *r) {
    for (size_t i = 0; i < reader_blocks(r); i++)
        if (reader_block(r, i)->types >> TRACE_torch_calls & 1)
            return 1;
    return 0;
}

int load_torch(struct load *l) {
    struct job j = {.l = l, .base = (int64_t)((uint64_t)l->trace << 40)};
    int rc;
    if (!has_any(l->shared.reader))
        return SQLITE_OK;
    rc = sqlite3_prepare_v2(l->db, "INSERT OR REPLACE INTO torch_module VALUES(?,?,?)", -1,
                            &j.insert, NULL);
    if (rc == SQLITE_OK)
        rc = each(&j, TRACE_torch_name, take_name);
    sqlite3_finalize(j.insert);
    if (rc == SQLITE_OK)
        rc = each(&j, TRACE_torch_calls, take_steps);
    if (rc == SQLITE_OK && torch_steps_ready(&j.steps))
        rc = SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = torch_rows_start(&j.calls, l->db, j.base);
    if (rc == SQLITE_OK)
        rc = each(&j, TRACE_torch_calls, take_calls);
    for (size_t i = 0; i < j.threads_made; i++)
        while (rc == SQLITE_OK && j.lanes[i]->n)
            rc = close_top(&j, j.lanes[i], last_end(&j, j.lanes[i]), 0);
    if (j.calls.wait) {
        int ended = torch_rows_end(&j.calls);
        rc = rc == SQLITE_OK ? ended : rc;
    }
    if (rc == SQLITE_OK)
        rc = write_sums(&j);
    if (rc == SQLITE_OK)
        rc = write_steps(&j);
    if (rc == SQLITE_OK)
        rc = correct_numbers(&j);
    for (size_t i = 0; i < j.threads_made; i++)
        free(j.lanes[i]);
    free(j.lanes);
    free(j.models);
    keys_free(&j.summed);
    free(j.sums);
    torch_steps_free(&j.steps);
    return rc;
}
