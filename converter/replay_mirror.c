/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_mirror.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIRROR_RANKS (1 << 24) /* a higher number is no rank */

static void add(struct mirror *m, struct mirror_end e) {
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 256;
        struct mirror_end *p = realloc(m->end, cap * sizeof *p);
        if (!p) {
            m->err = -ENOMEM;
            return;
        }
        m->end = p;
        m->cap = cap;
    }
    m->end[m->n++] = e;
}

/* Notes that there is a message of this rank. */
static void know(struct mirror *m, sqlite3_int64 rank) {
    size_t n = (size_t)rank + 1;

    if (rank >= MIRROR_RANKS || mirror_has(m, rank))
        return;
    if (n > m->nknown) {
        unsigned char *p = realloc(m->known, 2 * n);
        if (!p) {
            m->err = -ENOMEM;
            return;
        }
        memset(p + m->nknown, 0, 2 * n - m->nknown);
        m->known = p;
        m->nknown = 2 * n;
    }
    m->known[rank] = 1;
}

void mirror_add(struct mirror *m, const struct replay_job *j, sqlite3_int64 rank, size_t call,
                int sends) {
    const struct replay_call *c = &j->call[call];

    know(m, rank);
    add(m, (struct mirror_end){.rank = rank,
                               .time = sends ? c->exit : c->enter,
                               .call = call,
                               .meeting = -1,
                               .sends = sends});
}

void mirror_join(struct mirror *m, const struct replay_job *j, int meeting, size_t call) {
    add(m, (struct mirror_end){
               .rank = -1, .time = j->call[call].exit, .call = call, .meeting = meeting});
}

void mirror_arrive(struct mirror *m, const struct replay_job *j, sqlite3_int64 rank, size_t call,
                   double usual, int late) {
    const struct replay_call *c = &j->call[call];

    add(m, (struct mirror_end){.rank = rank,
                               .time = late ? c->exit - usual : c->enter,
                               .call = call,
                               .meeting = c->on,
                               .arrives = 1,
                               .usual = late ? usual : -1});
}

int mirror_has(const struct mirror *m, sqlite3_int64 rank) {
    return rank >= 0 && (size_t)rank < m->nknown && m->known[rank];
}

static int by_rank_and_time(const void *a, const void *b) {
    const struct mirror_end *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->call < y->call ? -1 : x->call > y->call;
}

/* Adds the call of the process that is not recorded to the last rank of the job. */
static void add_call(struct replay_job *j, const struct mirror_end *e) {
    struct replay_call *known = &j->call[e->call], *c = &j->call[j->ncalls];
    struct replay_rank *r = &j->rank[j->nranks - 1];
    int works = e->sends || (e->arrives && e->usual >= 0);

    *c = (struct replay_call){.enter = e->time,
                              .exit = e->arrives ? known->exit : e->time,
                              .in = -1,
                              .on = e->meeting,
                              .rank = j->nranks - 1,
                              .peers = j->npeers++,
                              .is_send = e->sends,
                              .is_idle = !works};
    if (e->meeting >= 0) {
        c->transfer = works ? e->usual : known->transfer;
        if (e->arrives) {
            c->in = e->meeting;
            j->needed[e->meeting]++;
        }
    } else {
        *(e->sends ? &c->in : &c->on) = *(e->sends ? &known->on : &known->in) = j->nmeetings;
        j->needed[j->nmeetings++] = 1;
    }
    if (j->ncalls == r->first)
        r->joins = c->is_idle;
    r->end = ++j->ncalls;
}

int mirror_make(struct mirror *m, struct replay_job *j) {
    size_t joins = 0, ranks = 0, calls = 0;

    if (m->err || m->n == 0)
        return m->err;
    qsort(m->end, m->n, sizeof *m->end, by_rank_and_time);
    while (joins < m->n && m->end[joins].rank < 0)
        joins++;
    for (size_t i = joins; i < m->n; i++)
        ranks += i == joins || m->end[i].rank != m->end[i - 1].rank;
    calls = j->ncalls + m->n - joins + ranks * joins;
    struct replay_call *c = realloc(j->call, sizeof *c * (calls + 1));
    if (c)
        j->call = c;
    struct replay_rank *r = realloc(j->rank, sizeof *r * ((size_t)j->nranks + ranks));
    if (r)
        j->rank = r;
    if (!c || !r)
        return -ENOMEM;
    for (size_t i = joins, n; i < m->n; i += n) {
        const struct mirror_end *e = &m->end[i];
        for (n = 1; i + n < m->n && e[n].rank == e->rank; n++)
            ;
        char *host = strdup("");
        if (!host)
            return -ENOMEM;
        r[j->nranks++] = (struct replay_rank){
            .trace = INT64_MAX, .rank = e->rank, .host = host, .stage = -1, .first = j->ncalls};
        size_t k = 0;
        while (k < joins && m->end[k].time < e->time)
            k++;
        for (size_t at = 0; at < n; at++) {
            for (; k < joins && m->end[k].time < e[at].time; k++)
                add_call(j, &m->end[k]);
            add_call(j, &e[at]);
        }
    }
    return 0;
}

void mirror_free(struct mirror *m) {
    free(m->end);
    free(m->known);
}
