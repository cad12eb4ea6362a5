/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_collectives.c - reads the instants that machines share: exits of collectives, and messages sent and received. Declared in align.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"
#include "align_inside.h"

#define BIT(type) (1ull << TRACE_##type)

static uint64_t final(uint64_t h) {
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static int by_attempt(const void *x, const void *y) {
    const struct trace_of *a = *(struct trace_of *const *)x, *b = *(struct trace_of *const *)y;

    if (a->run != b->run)
        return a->run < b->run ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->start_utc != b->start_utc)
        return a->start_utc < b->start_utc ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* What the kernel says of a process's start is a multiple of this before the start, in ns. */
#define START_STEP 10000000u

/* When a launcher starts a rank again, its collectives are counted from the beginning again, so each start gets its own attempt number. The
 * segments of one process belong to the same attempt, and so do the processes that it starts (loaders of data, other programs), which have its rank, too: they
 * begin before it ends. */
static int tell_attempts_apart(struct align *a) {
    struct trace_of **t = malloc((a->ntraces + 1) * sizeof *t);

    if (!t)
        return -ENOMEM;
    for (size_t i = 0; i < a->ntraces; i++)
        t[i] = &a->trace[i];
    qsort(t, a->ntraces, sizeof *t, by_attempt);
    uint64_t last = 0; /* of the attempt so far; CLOCK_MONOTONIC */
    for (size_t i = 0; i < a->ntraces; i++) {
        int same = 0;
        if (i && t[i]->run == t[i - 1]->run && t[i]->rank == t[i - 1]->rank) {
            same = t[i]->boot == t[i - 1]->boot &&
                   ((t[i]->pid == t[i - 1]->pid && t[i]->start == t[i - 1]->start) ||
                    (t[i]->start < last && last - t[i]->start > START_STEP));
            t[i]->attempt = t[i - 1]->attempt + !same;
        }
        last = same && last > t[i]->last ? last : t[i]->last;
    }
    free(t);
    a->attempts = 1;
    return 0;
}

/* Adds an instant. When there are too many, those with the larger half of the keys are dropped, the same ones for all boots. */
static int add_match(struct align *a, uint64_t key, unsigned sort, uint32_t boot, uint64_t at) {
    key = final(key) & ~(uint64_t)MATCH_SORT;
    if (key > a->limit)
        return 0;
    if (a->nmatches >= MATCHES_MAX) {
        size_t n = 0;
        a->limit /= 2;
        for (size_t i = 0; i < a->nmatches; i++)
            if ((a->match[i].key | MATCH_SORT) <= a->limit)
                a->match[n++] = a->match[i];
        a->nmatches = n;
        if (key > a->limit)
            return 0;
    }
    if (align_grow((void **)&a->match, a->nmatches, &a->matches_cap, sizeof *a->match) != 0)
        return -ENOMEM;
    a->match[a->nmatches++] = (struct match){key | sort, (int64_t)at, boot};
    return 0;
}

enum op { OP_OTHER, OP_ALL, OP_SEND, OP_RECV };

/* Classifies an operation; OP_ALL: no rank leaves it before all have entered. */
static enum op op_of(const char *p, size_t n) {
    static const char *const all[] = {"all_reduce", "all_gather", "reduce_scatter", "barrier",
                                      "all_to_all"};

    if (n == 4 && memcmp(p, "send", 4) == 0)
        return OP_SEND;
    if (n == 4 && memcmp(p, "recv", 4) == 0)
        return OP_RECV;
    if (n && *p == '_') /* _all_gather_base */
        p++, n--;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t k = strlen(all[i]);
        if (n >= k && memcmp(p, all[i], k) == 0)
            return OP_ALL;
    }
    return OP_OTHER;
}

#define GROUPS 1024 /* maximum number of process groups of a process */
struct found {
    uint64_t group[GROUPS]; /* hash of name and ranks, 0: not known */
    int64_t own[GROUPS];    /* rank of this process in the group */
    uint32_t epoch;         /* epoch that the string ids of `ops` belong to */
    uint8_t ops[256];       /* indexed by string id: enum op + 1 */
};

static uint64_t hash_group(const struct trace_value *v, const struct dict *d) {
    struct trace_value ranks = v[TRACE_process_group_ranks];
    uint64_t prev = 0, rank, h = 7;
    size_t n;
    const char *name = dict_string(d, v[TRACE_process_group_name].u, &n);

    h = align_mix(h, name, n);
    while (trace_list_next(&ranks, &prev,
                           &rank)) /* each of 10,000 ranks lists all: hash word by word */
        h = hash_step(h, rank);
    h = hash_spread(h);
    return h ? h : 1;
}

static int take_comm(struct align *a, const struct trace_of *t, struct found *f,
                     const struct trace_value *v, const struct dict *d) {
    uint64_t id = v[TRACE_comm_op].u, pg = v[TRACE_comm_pg].u, enter = v[TRACE_comm_ts].u;
    size_t n = 0;

    if (v[TRACE_comm_flags].u || pg >= GROUPS || !f->group[pg] || enter > ALIGN_TIME_MAX ||
        v[TRACE_comm_duration].u > ALIGN_TIME_MAX - enter)
        return 0;
    enum op op = OP_OTHER;
    if (id < 256 && f->ops[id])
        op = (enum op)(f->ops[id] - 1);
    else {
        const char *p = dict_string(d, id, &n);
        op = op_of(p, n);
        if (id < 256)
            f->ops[id] = (uint8_t)(op + 1);
    }
    if (op == OP_OTHER)
        return 0;
    uint64_t parts[5] = {t->run, t->attempt, f->group[pg], v[TRACE_comm_seq].u, op == OP_ALL};
    uint64_t key = align_mix(11, parts, sizeof parts);
    if (op == OP_ALL)
        return add_match(a, key, MATCH_EXIT, t->boot, enter + v[TRACE_comm_duration].u);
    int64_t ends[2] = {v[TRACE_comm_src].i, v[TRACE_comm_dst].i};
    int64_t *self = &ends[op == OP_RECV];
    if (*self < 0)
        *self = f->own[pg];
    if (ends[0] < 0 || ends[1] < 0)
        return 0;
    key = align_mix(key, ends, sizeof ends);
    return op == OP_SEND
               ? add_match(a, key, MATCH_SENT, t->boot, enter)
               : add_match(a, key, MATCH_RECEIVED, t->boot, enter + v[TRACE_comm_duration].u);
}

/* Reads records of the types in `want`. Call it for process groups first, since their records may come later than the communication in them. */
static int read_comm(struct align *a, const struct trace_of *t, struct reader *r, struct epochs *es,
                     struct found *f, uint64_t want, uint64_t lo, uint64_t hi) {
    struct reader_data data = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int type, err = 0;

    for (size_t i = 0; !err && i < reader_blocks(r); i++) {
        const struct reader_block *b = reader_block(r, i);
        if (!reader_may_hold(r, i, want) || b->last_ts < lo || b->first_ts > hi ||
            (err = reader_load(r, i, &data)) != 0) {
            err = err == -ENOMEM ? err : 0;
            continue;
        }
        const struct dict *d = epochs_get(es, data.h.epoch);
        if (!d)
            err = -ENOMEM;
        else if (data.h.epoch != f->epoch)
            memset(f->ops, 0, sizeof f->ops);
        f->epoch = data.h.epoch;
        trace_rows_start(&rows, &data.h, data.data);
        while (!err && (type = trace_rows_next(&rows, want, v)) > 0) {
            if (type == TRACE_comm)
                err = take_comm(a, t, f, v, d);
            else if (v[TRACE_process_group_pg].u < GROUPS) {
                f->group[v[TRACE_process_group_pg].u] = hash_group(v, d);
                f->own[v[TRACE_process_group_pg].u] = v[TRACE_process_group_rank].i;
            }
        }
    }
    reader_data_free(&data);
    return err;
}

int align_collectives(struct align *a, size_t nth, struct reader *r, struct epochs *es, uint64_t lo,
                      uint64_t hi) {
    struct found *f = calloc(1, sizeof *f);
    int err = f ? 0 : -ENOMEM;

    if (!err && !a->attempts)
        err = tell_attempts_apart(a);
    if (!err)
        err = read_comm(a, &a->trace[nth], r, es, f, BIT(process_group), 0, UINT64_MAX);
    if (!err)
        err = read_comm(a, &a->trace[nth], r, es, f, BIT(comm), lo, hi);
    free(f);
    return err;
}
