/* SPDX-License-Identifier: Apache-2.0 */
#include "align.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"
#include "align_inside.h"
#include "text.h"

#define BIT(type) (1ull << TRACE_##type)

struct align *align_new(void) {
    struct align *a = calloc(1, sizeof *a);

    if (a) {
        keys_init(&a->boot_ids);
        a->limit = UINT64_MAX;
    }
    return a;
}

void align_free(struct align *a) {
    if (!a)
        return;
    for (size_t i = 0; i < a->nboots; i++) {
        struct boot *b = &a->boot[i];
        free(b->out.boot_id);
        free(b->out.host);
        free(b->out.key);
        free(b->anchor);
        clock_fit_free(&b->fit);
        clock_free(&b->map);
        clock_free(&b->given);
    }
    for (size_t i = 0; i < a->nmoves; i++)
        clock_free(&a->move[i].map);
    for (size_t i = 0; i < a->nkept; i++)
        free(a->kept[i]);
    free(a->kept);
    free(a->move);
    free(a->boot);
    free(a->trace);
    free(a->match);
    keys_free(&a->boot_ids);
    free(a);
}

uint64_t align_mix(uint64_t h, const void *p, size_t n) {
    return hash_spread(hash_bytes(h, p, n));
}

int align_grow(void **p, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return 0;
    size_t more = *cap * 2 + 16;
    void *q = realloc(*p, more * size);

    if (!q)
        return -ENOMEM;
    *p = q;
    *cap = more;
    return 0;
}

/* What the last process record says; an empty text does not replace a known one. */
struct who {
    struct trace_value boot_id, host, run, job, master;
    struct trace_of t;
    int known;
};

static void keep(struct trace_value *to, const struct trace_value *v, char buf[256]) {
    if (v->n == 0)
        return;
    to->n = v->n < 256 ? v->n : 256;
    memcpy(buf, v->p, to->n);
    to->p = (const uint8_t *)buf;
}

static int boot_of(struct align *a, const struct who *w, uint32_t *out) {
    int is_new = 0;
    /* a trace without a boot id counts as a boot of its own */
    char none[META_RECORDING];
    meta_recording_of(none, "", w->t.pid, w->t.start, w->t.process_ts, w->t.mark);
    char *key = w->boot_id.n ? text_utf8(w->boot_id.p, w->boot_id.n, NULL) : strdup(none);
    uint32_t id = key ? keys_put(&a->boot_ids, key, strlen(key), &is_new) : 0;

    if (id == 0 || !is_new) {
        free(key);
        *out = id - 1;
        return id ? 0 : -ENOMEM;
    }
    if (align_grow((void **)&a->boot, a->nboots, &a->boots_cap, sizeof *a->boot) != 0) {
        free(key);
        return -ENOMEM;
    }
    struct boot *b = &a->boot[a->nboots++];
    memset(b, 0, sizeof *b);
    b->out.key = key;
    b->out.boot_id = text_utf8(w->boot_id.p, w->boot_id.n, NULL);
    b->out.host = text_utf8(w->host.p, w->host.n, NULL);
    *out = id - 1;
    return b->out.boot_id && b->out.host ? 0 : -ENOMEM;
}

int align_by_mono(const void *x, const void *y) {
    const struct anchor *a = x, *b = y;

    return a->mono < b->mono ? -1 : a->mono > b->mono;
}

/* The anchors read from one trace. */
struct anchors {
    struct anchor *v;
    size_t n, cap;
};

static int take_anchor(struct anchors *to, const struct trace_value *v) {
    if (v[TRACE_clock_ts].u > ALIGN_TIME_MAX || v[TRACE_clock_bracket].u > ALIGN_TIME_MAX ||
        v[TRACE_clock_boottime].u > ALIGN_TIME_MAX ||
        v[TRACE_clock_realtime].u > INT64_MAX - ALIGN_TIME_MAX)
        return 0;
    int err = align_grow((void **)&to->v, to->n, &to->cap, sizeof *to->v);

    if (!err)
        to->v[to->n++] =
            (struct anchor){(int64_t)(v[TRACE_clock_ts].u + v[TRACE_clock_bracket].u / 2),
                            (int64_t)v[TRACE_clock_realtime].u, (int64_t)v[TRACE_clock_boottime].u,
                            v[TRACE_clock_bracket].u};
    return err;
}

static void take_process(struct who *w, const struct trace_value *v, char text[5][256]) {
    keep(&w->boot_id, &v[TRACE_process_boot_id], text[0]);
    keep(&w->host, &v[TRACE_process_host], text[1]);
    keep(&w->run, &v[TRACE_process_run], text[2]);
    keep(&w->job, &v[TRACE_process_job], text[3]);
    keep(&w->master, &v[TRACE_process_master], text[4]);
    w->t.process_ts = w->t.process_ts ? w->t.process_ts : v[TRACE_process_ts].u;
    w->t.rank = v[TRACE_process_rank].i;
    w->t.pid = v[TRACE_process_pid].u;
    w->t.start = v[TRACE_process_start_ts].u;
}

/* Reads the anchors of block i into `to` and, with w, its process records into w. Returns 0 or -ENOMEM. */
static int read_block(struct reader *r, size_t i, struct reader_data *data, struct anchors *to,
                      struct who *w, char text[5][256]) {
    const uint64_t want = BIT(clock) | (w ? BIT(process) : 0);
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int type, err = reader_load(r, i, data);

    if (err)
        return err == -ENOMEM ? err : 0;
    trace_rows_start(&rows, &data->h, data->data);
    while (!err && (type = trace_rows_next(&rows, want, v)) > 0) {
        if (type == TRACE_clock)
            err = take_anchor(to, v);
        else
            take_process(w, v, text);
    }
    return err;
}

/* Gives the boot the anchors, thinned out because thousands of traces of a boot have nearly the same ones. Frees from->v. Returns 0 or -ENOMEM. */
static int give_anchors(struct boot *b, struct anchors *from) {
    int64_t last = INT64_MIN / 2;
    int err = 0;

    if (from->n)
        qsort(from->v, from->n, sizeof *from->v, align_by_mono);
    for (size_t i = 0; !err && i < from->n; i++) {
        if (i && i + 1 < from->n && from->v[i].mono - last < ALIGN_APART)
            continue;
        last = from->v[i].mono;
        err = align_grow((void **)&b->anchor, b->nanchors, &b->cap, sizeof *b->anchor);
        if (!err)
            b->anchor[b->nanchors++] = from->v[i];
    }
    free(from->v);
    return err;
}

static int is_loopback(const struct trace_value *master) {
    static const char *const begins[] = {"127.", "localhost:", "::1", "[::1]"};

    for (unsigned i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        if (master->n >= n && memcmp(master->p, begins[i], n) == 0)
            return 1;
    }
    return 0;
}

int align_trace(struct align *a, struct reader *r, int all) {
    char text[5][256];
    struct who w = {.t = {.rank = -1}};
    struct anchors anchors = {0};
    struct reader_data data = {0};
    int err = 0;

    for (size_t i = 0; !err && i < reader_blocks(r); i++) {
        const struct reader_block *b = reader_block(r, i);
        if (b->kind == TRACE_KIND_DATA && b->last_ts && b->last_ts <= ALIGN_TIME_MAX) {
            w.t.first = w.t.first && w.t.first < b->first_ts ? w.t.first : b->first_ts;
            w.t.last = b->last_ts > w.t.last ? b->last_ts : w.t.last;
        }
        if (reader_may_hold(r, i, BIT(process) | BIT(clock)) &&
            (all || !anchors.n || !reader_has_anchors_alone(r, i)))
            err = read_block(r, i, &data, &anchors, &w, text);
    }
    reader_data_free(&data);
    w.t.mark = w.t.process_ts ? 0 : reader_mark(r);
    if (!err)
        err = align_grow((void **)&a->trace, a->ntraces, &a->traces_cap, sizeof *a->trace);
    if (!err)
        err = boot_of(a, &w, &w.t.boot);
    if (err) {
        free(anchors.v);
        return err;
    }
    /* The name of the run that is the same on all its machines: the job, else the address where they meet, else the run, which is of one
     * machine only. */
    const struct trace_value *name = w.job.n ? &w.job : w.master.n ? &w.master : &w.run;
    w.t.run = align_mix((uint64_t)(w.job.n ? 1 : w.master.n ? 2 : 3), name->p, name->n);
    /* A launcher's job may hold several trainings side by side. A loopback address may be one that nobody uses, of any machine. */
    if (w.job.n && w.master.n && !is_loopback(&w.master))
        w.t.run = align_mix(w.t.run, w.master.p, w.master.n);
    w.t.start_utc = anchors.n && w.t.start <= ALIGN_TIME_MAX
                        ? anchors.v[0].real + ((int64_t)w.t.start - anchors.v[0].mono)
                        : 0;
    w.t.bytes = reader_size(r);
    a->trace[a->ntraces++] = w.t;
    a->boot[w.t.boot].out.traces++;
    return give_anchors(&a->boot[w.t.boot], &anchors);
}

int align_anchors(struct align *a, size_t nth, struct reader *r, uint64_t lo, uint64_t hi) {
    struct anchors anchors = {0};
    struct reader_data data = {0};
    size_t i, end;
    int err = 0;

    for (reader_anchors(r, lo, hi, &i, &end); !err && i < end; i++)
        if (reader_has_anchors_alone(r, i))
            err = read_block(r, i, &data, &anchors, NULL, NULL);
    reader_data_free(&data);
    int err2 = give_anchors(&a->boot[a->trace[nth].boot], &anchors);
    return err ? err : err2;
}

int align_wanted(const struct align *a) {
    return a->nboots > 1;
}

void align_recording(const struct align *a, size_t nth, char buf[META_RECORDING]) {
    const struct trace_of *t = &a->trace[nth];

    meta_recording_of(buf, a->boot[t->boot].out.boot_id, t->pid, t->start, t->process_ts, t->mark);
}

size_t align_copy_of(const struct align *a, size_t nth) {
    return a->trace[nth].copy;
}

int align_known(struct align *a, uint32_t id, const char *key, unsigned group, int knot,
                int64_t mono, int64_t utc) {
    uint32_t n = keys_find(&a->boot_ids, key, strlen(key));

    a->groups = group > a->groups ? group : a->groups;
    if (n == 0)
        return 0; /* no trace of this boot is being added, so it is not needed */
    a->boot[n - 1].out.known = id;
    a->boot[n - 1].out.group = group;
    return knot ? clock_add(&a->boot[n - 1].given, (uint64_t)mono, (uint64_t)utc, 0) : 0;
}

void align_known_how(struct align *a, const char *key, const char *method, double uncertainty) {
    uint32_t n = keys_find(&a->boot_ids, key, strlen(key));

    for (int m = ALIGN_NONE; n && m <= ALIGN_COLLECTIVES; m++)
        if (strcmp(method, align_method_name((enum align_method)m)) == 0) {
            a->boot[n - 1].out.method = (enum align_method)m;
            a->boot[n - 1].out.uncertainty = uncertainty;
        }
}

void align_known_until(struct align *a, const char *key, int64_t utc) {
    uint32_t n = keys_find(&a->boot_ids, key, strlen(key));

    if (n)
        a->boot[n - 1].until = utc;
}

int align_apply(const struct align *a, size_t nth, struct meta *m) {
    const struct clock_map *from = &a->boot[a->trace[nth].boot].map;
    struct clock_anchor *copy = malloc((from->n + 1) * sizeof *copy);

    if (!copy)
        return -ENOMEM;
    if (from->n)
        memcpy(copy, from->a, from->n * sizeof *copy);
    free(m->clock.a);
    m->clock.a = copy;
    m->clock.n = m->clock.cap = from->n;
    m->clock.last = 0;
    return 0;
}

void align_span(struct align *a, int64_t *first, int64_t *last) {
    int any = 0;

    *first = *last = 0;
    for (size_t i = 0; i < a->ntraces; i++) {
        const struct trace_of *t = &a->trace[i];
        struct clock_map *m = &a->boot[t->boot].map;
        if (!t->last)
            continue;
        int64_t from = clock_utc(m, t->first), to = clock_utc(m, t->last);
        *first = any && *first < from ? *first : from;
        *last = any && *last > to ? *last : to;
        any = 1;
    }
}

size_t align_boots(const struct align *a) {
    return a->nboots;
}

const struct align_boot *align_boot(const struct align *a, size_t i) {
    return &a->boot[i].out;
}

const struct align_boot *align_boot_of(const struct align *a, size_t nth) {
    return &a->boot[a->trace[nth].boot].out;
}

const char *align_method_name(enum align_method m) {
    static const char *const names[] = {"none", "anchors", "messages", "collectives"};

    return names[m];
}
