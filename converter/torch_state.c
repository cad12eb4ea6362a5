/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/varint.h"

#define VERSION    2
#define MOST_NAMES (1u << 24)
#define MOST_STEPS (1u << 16)
/* Steps that ended less than this before the point are stored too, because late records of another thread may belong to one of them. */
#define LATE_NS 10000000000u

struct torch_open *torch_state_thread(struct torch_state *t, uint64_t tid) {
    uint32_t id = keys_find(&t->tids, &tid, sizeof tid);
    int is_new;

    if (id)
        return t->threads[id - 1];
    if (t->nthreads == t->threads_cap) {
        size_t cap = t->threads_cap * 2 + 64;
        void *more = realloc(t->threads, cap * sizeof *t->threads);
        if (!more)
            return NULL;
        t->threads = more;
        t->threads_cap = cap;
    }
    struct torch_open *o = calloc(1, sizeof *o);
    if (!o || !keys_put(&t->tids, &tid, sizeof tid, &is_new)) {
        free(o);
        return NULL;
    }
    o->tid = tid;
    t->threads[t->nthreads++] = o;
    return o;
}

int torch_state_room(struct torch_open *o) {
    if (o->n < o->cap)
        return 0;
    uint32_t cap = o->cap * 2 + 8;
    void *more = realloc(o->open, cap * sizeof *o->open);
    if (!more)
        return -ENOMEM;
    o->open = more;
    o->cap = cap;
    return 0;
}

void torch_state_none(struct torch_open *o) {
    free(o->open);
    o->open = NULL;
    o->n = o->cap = 0;
}

int torch_state_model(struct torch_state *t, uint64_t name) {
    if (name >= t->nmodels) {
        size_t n = (size_t)name * 2 + 64;
        uint8_t *more = name < MOST_NAMES ? realloc(t->models, n) : NULL;
        if (!more)
            return name < MOST_NAMES ? -ENOMEM : 0;
        memset(more + t->nmodels, 0, n - t->nmodels);
        t->models = more;
        t->nmodels = n;
    }
    t->models[name] = 1;
    return 0;
}

struct torch_sum *torch_state_sum(struct torch_state *t, uint64_t name, unsigned stage) {
    uint64_t key[2] = {name, stage};
    uint32_t *near = name < TORCH_NEAR / 8 && stage < 8 ? &t->near[name * 8 + stage] : NULL;
    int is_new;

    if (near && *near)
        return &t->sums[*near - 1];
    uint32_t id = keys_put(&t->summed, key, sizeof key, &is_new);
    if (id > t->sums_cap) {
        size_t cap = t->sums_cap * 2 + 64;
        void *p = realloc(t->sums, cap * sizeof *t->sums);
        if (!p)
            return NULL;
        t->sums = p;
        t->sums_cap = cap;
    }
    if (!id)
        return NULL;
    if (is_new)
        t->sums[id - 1] = (struct torch_sum){0};
    if (near)
        *near = id;
    return &t->sums[id - 1];
}

/* One description of the format serves for both writing and reading. */
struct bytes {
    uint8_t *out; /* writing: the output; NULL: reading */
    size_t n, cap;
    const uint8_t *p, *end;
    int err;
};

static uint64_t word(struct bytes *b, uint64_t v) {
    if (b->err)
        return 0;
    if (!b->out) {
        b->p = varint_get(b->p, b->end, &v);
        b->err = b->p ? 0 : -EBADMSG;
        return b->err ? 0 : v;
    }
    if (b->cap - b->n < VARINT_MAX) {
        void *more = realloc(b->out, b->cap * 2);
        if (!more) {
            b->err = -ENOMEM;
            return 0;
        }
        b->out = more;
        b->cap *= 2;
    }
    b->n = (size_t)(varint_put(b->out + b->n, v) - b->out);
    return v;
}

#define WORD(b, x)   ((x) = (__typeof__(x))word(b, (uint64_t)(x)))
#define SIGNED(b, x) ((x) = (__typeof__(x))unzigzag(word(b, zigzag((int64_t)(x)))))

/* The number of items that follow; each takes at least one byte. */
static size_t many(struct bytes *b, size_t n, size_t most) {
    WORD(b, n);
    if (!b->err && !b->out && (n > most || n > (size_t)(b->end - b->p)))
        b->err = -EBADMSG;
    return b->err ? 0 : n;
}

static void interval(struct bytes *b, struct torch_interval *v, int64_t base, int64_t begun) {
    int64_t number = v->id - base, up = v->parent ? v->id - v->parent : 0;

    WORD(b, v->ts);
    WORD(b, number);
    WORD(b, up);
    WORD(b, v->name);
    WORD(b, v->call);
    WORD(b, v->tid);
    WORD(b, v->step);
    WORD(b, v->seq);
    SIGNED(b, v->inner);
    WORD(b, v->depth);
    WORD(b, v->has_step);
    WORD(b, v->stage);
    WORD(b, v->flags);
    SIGNED(b, v->part);
    v->id = base + number;
    v->parent = up ? v->id - up : 0;
    if (!b->out && ((unsigned)v->stage > STAGE_DATA || v->part < -1 || v->part >= TORCH_PARTS ||
                    number < 1 || number > begun))
        b->err = -EBADMSG;
}

static void threads(struct bytes *b, struct torch_state *t) {
    size_t open = 0;

    for (size_t i = 0; i < t->nthreads; i++)
        open += t->threads[i]->n > 0;
    open = many(b, open, SIZE_MAX);
    for (size_t i = 0; i < (b->out ? t->nthreads : open) && !b->err; i++) {
        uint64_t tid = b->out ? t->threads[i]->tid : 0;
        if (b->out && !t->threads[i]->n)
            continue;
        WORD(b, tid);
        struct torch_open *o = torch_state_thread(t, tid);
        if (!o) {
            b->err = -ENOMEM;
            return;
        }
        uint32_t n = (uint32_t)many(b, o->n, TORCH_DEPTH);
        if (!b->out)
            o->n = 0;
        for (uint32_t k = 0; k < n && !b->err; k++) {
            if (!b->out && (b->err = torch_state_room(o)) == 0)
                o->open[o->n++] = (struct torch_interval){0};
            if (!b->err)
                interval(b, &o->open[k], t->base, t->begun);
        }
    }
}

static void models(struct bytes *b, struct torch_state *t) {
    size_t n = 0;

    for (size_t i = 0; i < t->nmodels; i++)
        n += t->models[i];
    n = many(b, n, MOST_NAMES);
    for (uint64_t name = 0; n && !b->err; name++) {
        if (b->out && !t->models[name])
            continue;
        WORD(b, name);
        n--;
        if (!b->out && !b->err && torch_state_model(t, name) != 0)
            b->err = -ENOMEM;
    }
}

static void sums(struct bytes *b, struct torch_state *t) {
    size_t n = many(b, t->summed.n, UINT32_MAX);

    for (uint32_t id = 1; id <= n && !b->err; id++) {
        uint64_t name = 0, stage = 0;
        if (b->out) {
            const uint64_t *key = keys_key(&t->summed, id, NULL);
            name = key[0];
            stage = key[1];
        }
        WORD(b, name);
        WORD(b, stage);
        struct torch_sum *s = torch_state_sum(t, name, (unsigned)stage);
        if (!s) {
            b->err = -ENOMEM;
            return;
        }
        WORD(b, s->calls);
        WORD(b, s->timed);
        SIGNED(b, s->ns);
        SIGNED(b, s->self_ns);
        SIGNED(b, s->longest);
    }
}

static void counted(struct bytes *b, struct torch_counted *c) {
    WORD(b, c->number);
    WORD(b, c->begin);
    WORD(b, c->source);
    WORD(b, c->tid);
    for (int k = 0; k < TORCH_PARTS; k++) {
        SIGNED(b, c->ns[k]);
        WORD(b, c->count[k]);
    }
    WORD(b, c->seq);
}

/* The steps of `s` that were announced, and in `c` the counts of those that had begun. */
static void steps(struct bytes *b, struct torch_steps *s, struct torch_counted **c, size_t *nc) {
    WORD(b, s->dropped);
    WORD(b, s->dropped_root);
    WORD(b, s->dropped_end);
    WORD(b, s->dropped_number);
    WORD(b, s->dropped_source);
    WORD(b, s->begun.number);
    WORD(b, s->begun.since);
    WORD(b, s->begun.until);
    WORD(b, s->leader);
    WORD(b, s->first);
    WORD(b, s->grouped);
    WORD(b, s->before);
    WORD(b, s->depth);
    s->n = many(b, s->n, MOST_STEPS);
    *nc = many(b, *nc, MOST_STEPS + 1);
    if (!b->out && !b->err) {
        s->s = calloc(s->n + 1, sizeof *s->s);
        s->cap = s->n + 1;
        *c = calloc(*nc + 1, sizeof **c);
        if (!s->s || !*c) {
            s->n = *nc = 0;
            b->err = -ENOMEM;
        }
    }
    for (size_t i = 0; i < s->n && !b->err; i++) {
        WORD(b, s->s[i].number);
        WORD(b, s->s[i].end);
        WORD(b, s->s[i].told);
        WORD(b, s->s[i].source);
        WORD(b, s->s[i].tid);
    }
    for (size_t i = 0; i < *nc && !b->err; i++)
        counted(b, &(*c)[i]);
    if (s->grouped && !s->n) /* the last one may be extended, so it must be there */
        b->err = b->err ? b->err : -EBADMSG;
}

static void state(struct bytes *b, struct torch_state *t) {
    uint64_t version = VERSION;

    if (WORD(b, version) != VERSION && !b->err)
        b->err = -EBADMSG;
    WORD(b, t->from);
    WORD(b, t->most);
    WORD(b, t->begun);
    WORD(b, t->names);
    WORD(b, t->pass_end);
    if (!b->out && (t->begun < 0 || t->begun >> 40))
        b->err = -EBADMSG;
    threads(b, t);
    models(b, t);
    sums(b, t);
}

/* Returns how many of the steps before p will not be changed by anything any more. */
static size_t settled(const struct torch_state *t, const struct torch_point *p, uint64_t later) {
    const struct torch_step *s = t->steps.s;
    uint64_t limit = p->most > LATE_NS ? p->most - LATE_NS : 0;
    size_t n = 0;
    int train = t->steps.dropped > 0;

    limit = later < limit ? later : limit;
    for (size_t i = 0; i < t->nthreads; i++)
        for (uint32_t k = 0; k < t->threads[i]->n; k++)
            if (t->threads[i]->open[k].ts < limit)
                limit = t->threads[i]->open[k].ts;
    while (n + 1 < p->steps.n && s[n].end <= limit)
        train |= torch_steps_is(&s[n++]);
    for (size_t i = n; i > 0 && !torch_steps_is(&s[i - 1]); i--)
        n = s[i - 1].source == TORCH_PART ? i - 1 : n; /* the step is needed with its parts */
    return train ? n : 0; /* the first one that is a step must be known */
}

uint8_t *torch_state_save(struct torch_state *t, const struct torch_point *p, uint64_t later,
                          size_t *n) {
    struct torch_step *all = t->steps.s;
    struct torch_steps kept = p->steps;
    struct torch_counted *c = NULL;
    size_t k = settled(t, p, later), nc = 0;
    struct bytes b = {.cap = 4096, .err = -ENOMEM};

    *n = 0;
    if (kept.n - k > MOST_STEPS || !p->most || (t->follows && !(t->steps.dropped + k)))
        return NULL;
    torch_steps_drop(&t->steps, &kept, k);
    while (k + nc < t->steps.n && all[k + nc].begin <= p->most)
        nc++;
    *n = 1;
    kept.n -= k;
    kept.s = calloc(kept.n + 1, sizeof *kept.s);
    c = calloc(nc + 1, sizeof *c);
    if (!kept.s || !c || !(b.out = malloc(b.cap)))
        goto out;
    b.err = 0;
    for (size_t i = 0; i < kept.n; i++)
        kept.s[i] = all[k + i];
    if (kept.n)
        kept.s[kept.n - 1].end = p->end;
    for (size_t i = 0; i < nc; i++) {
        const struct torch_step *s = &all[k + i];
        c[i] = (struct torch_counted){.number = s->number,
                                      .begin = s->begin,
                                      .source = s->source,
                                      .seq = s->seq,
                                      .tid = s->tid};
        memcpy(c[i].ns, s->ns, sizeof s->ns);
        memcpy(c[i].count, s->count, sizeof s->count);
    }
    t->from = p->from;
    t->most = p->most;
    state(&b, t);
    steps(&b, &kept, &c, &nc);
out:
    free(kept.s);
    free(c);
    if (b.err) {
        free(b.out);
        return NULL;
    }
    *n = b.n;
    return b.out;
}

int torch_state_restore(struct torch_state *t, const uint8_t *p, size_t n) {
    struct bytes b = {.p = p, .end = p + n};

    state(&b, t);
    steps(&b, &t->steps, &t->counted, &t->ncounted);
    return b.err;
}

int torch_state_known(struct torch_state *t) {
    struct torch_steps *s = &t->steps;

    if (s->missed || s->n < t->ncounted ||
        (t->ncounted && s->n > t->ncounted && s->s[t->ncounted].begin <= t->most))
        return 0;
    for (size_t i = 0; i < t->ncounted; i++) {
        const struct torch_counted *c = &t->counted[i];
        if (s->s[i].number != c->number || s->s[i].begin != c->begin ||
            s->s[i].source != c->source || s->s[i].tid != c->tid)
            return 0;
        memcpy(s->s[i].ns, c->ns, sizeof c->ns);
        memcpy(s->s[i].count, c->count, sizeof c->count);
        s->s[i].seq = c->seq;
    }
    return 1;
}

void torch_state_free(struct torch_state *t) {
    for (size_t i = 0; i < t->nthreads; i++) {
        torch_state_none(t->threads[i]);
        free(t->threads[i]);
    }
    free(t->threads);
    keys_free(&t->tids);
    free(t->models);
    keys_free(&t->summed);
    free(t->sums);
    free(t->counted);
    torch_steps_free(&t->steps);
    memset(t, 0, sizeof *t);
}
