/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_meet.h"

#include <stdlib.h>

#include "replay_mirror.h"

static int by_time(const void *a, const void *b) {
    const struct replay_point *x = a, *y = b;

    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return (x->is_exit > y->is_exit) - (x->is_exit < y->is_exit);
}

/*
 * A call that follows the end of another at once must not seem to come before that end. So ends are moved back by the errors of time: times are
 * seconds since 1970 in 53 bits (RESOLUTION), and a duration is by the rank's own clock, which drifts against the others' by up to DRIFT.
 */
#define RESOLUTION 1e-6
#define DRIFT      1e-4

int meet_points(struct replay_job *j) {
    if (!(j->point = malloc(2 * sizeof *j->point * (j->ncalls + 1))))
        return SQLITE_NOMEM;
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        double end = c->exit - RESOLUTION - DRIFT * (c->exit - c->enter);
        j->point[2 * i] = (struct replay_point){c->enter, (uint32_t)i, 0};
        j->point[2 * i + 1] =
            (struct replay_point){end > c->enter ? end : c->enter, (uint32_t)i, 1};
    }
    for (int r = 0; r < j->nranks; r++) {
        struct replay_point *p = j->point + 2 * j->rank[r].first;
        size_t n = 2 * (j->rank[r].end - j->rank[r].first);
        qsort(p, n, sizeof *p, by_time);
        double last = 0;
        for (size_t i = 0; i < n; i++) {
            struct replay_call *c = &j->call[p[i].call];
            if (!p[i].is_exit)
                c->work = !i ? -1 : c->is_idle ? 0 : c->enter > last ? c->enter - last : 0;
            if (!i || !p[i].is_exit || c->exit > last)
                last = p[i].is_exit ? c->exit : c->enter;
        }
    }
    return SQLITE_OK;
}

struct sorted {
    uint64_t key;
    size_t call;
};

static int by_key(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->call < y->call ? -1 : x->call > y->call;
}

static double clamp(double v, double max) {
    return v < 0 ? 0 : v > max ? max : v;
}

static int is_first(const struct replay_job *j, size_t call) {
    return call == j->rank[j->call[call].rank].first;
}

/* Finds the ranks whose recording began later than those of the ranks that they meet here: it is their first call, but neither the others' nor the group's. */
static void find_joining(struct replay_job *j, const struct meet_key *keys, const struct sorted *s,
                         size_t n) {
    int was_met = 0;

    for (size_t i = 0; i < n; i++)
        was_met |= !is_first(j, s[i].call);
    for (size_t i = 0; was_met && i < n; i++)
        j->rank[j->call[s[i].call].rank].joins |=
            keys[s[i].call].is_later && is_first(j, s[i].call);
}

/* A message: the receiver waits for the sender. The sender waits for the receiver if it was still in its call when the receiver came. */
static void meet_message(struct replay_job *j, const struct meet_key *keys, const struct sorted *s,
                         size_t n, struct mirror *m) {
    struct replay_call *a = &j->call[s[0].call], *b = n > 1 ? &j->call[s[1].call] : NULL;

    if (n == 1 && keys[s[0].call].other >= 0) /* the other end has no trace */
        mirror_add(m, j, keys[s[0].call].other, s[0].call, keys[s[0].call].kind == MEET_RECV);
    if (n != 2 || keys[s[0].call].kind == keys[s[1].call].kind)
        return;
    struct replay_call *send = keys[s[0].call].kind == MEET_SEND ? a : b, *recv = send == a ? b : a;
    send->in = recv->on = j->nmeetings;
    j->needed[j->nmeetings++] = 1;
    recv->transfer = clamp(recv->exit - (send->enter > recv->enter ? send->enter : recv->enter),
                           recv->exit - recv->enter);
    if (recv->enter > send->enter && send->exit >= recv->enter) {
        recv->in = send->on = j->nmeetings;
        j->needed[j->nmeetings++] = 1;
        send->transfer = clamp(send->exit - recv->enter, send->exit - send->enter);
    }
}

/* Returns by how much a time of rank a may be wrong on the clock of rank b; < 0: these clocks cannot be compared. */
static double apart(const struct replay_rank *a, const struct replay_rank *b) {
    if (a->boot && a->boot == b->boot)
        return 0;
    return a->clock == b->clock && a->uncertainty >= 0 && b->uncertainty >= 0
               ? a->uncertainty + b->uncertainty
               : -1;
}

/* Lets each rank leave a collective as late after the last one came as it did, as far as that is more than its clock may be wrong. Among many ranks
 * one is late so nearly always (its thread got no processor, a packet was sent again), and whoever it is comes late to the next one. */
static void leave(struct replay_job *j, const struct sorted *s, size_t n, int m) {
    const struct replay_call *last = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct replay_call *c = &j->call[s[i].call];
        if (c->in == m && (!last || c->enter > last->enter))
            last = c;
    }
    double error = last ? 0 : -1;
    for (size_t i = 0; i < n && error >= 0; i++) {
        double more = apart(&j->rank[j->call[s[i].call].rank], &j->rank[last->rank]);
        error = more < 0 || more > error ? more : error;
    }
    for (size_t i = 0; i < n && error >= 0; i++) {
        struct replay_call *c = &j->call[s[i].call];
        double took = c->exit - (last->enter > c->enter ? last->enter : c->enter) - error;
        if (c->on == m && took > c->transfer)
            c->transfer = clamp(took, c->exit - c->enter);
    }
}

/* A collective. Its own time is what the last rank to come spent in it, the shortest of all durations: so clocks need not be compared. Returns that
 * rank's call. */
static size_t meet(struct replay_job *j, const struct meet_key *keys, const struct sorted *s,
                   size_t n) {
    double shortest = -1;
    size_t last = s[0].call;
    int m = j->nmeetings++;

    for (size_t i = 0; i < n; i++) {
        struct replay_call *c = &j->call[s[i].call];
        const struct meet_key *k = &keys[s[i].call];
        int waits = k->kind == MEET_ALL || (int)k->is_root == (k->kind == MEET_TO_ROOT);
        if (k->kind == MEET_ALL || k->kind == MEET_TO_ROOT || k->is_root) {
            c->in = m;
            j->needed[m]++;
        }
        if (waits) {
            double took = c->exit - c->enter;
            c->on = m;
            last = shortest < 0 || took < shortest ? s[i].call : last;
            shortest = shortest < 0 || took < shortest ? took : shortest;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (j->call[s[i].call].on == m)
            j->call[s[i].call].transfer = shortest;
    }
    if ((int)n == keys[s[0].call].size)
        leave(j, s, n, m);
    return last;
}

/* Sorts by key, then replaces each key by the number of its class. Returns the number of classes. */
static int number(struct sorted *s, size_t n) {
    int classes = 0;

    qsort(s, n, sizeof *s, by_key);
    for (size_t i = 0; i < n;) {
        uint64_t key = s[i].key;
        for (; i < n && s[i].key == key; i++)
            s[i].key = (uint64_t)classes;
        classes++;
    }
    return classes;
}

int meet_make(struct replay_job *j, const struct meet_key *keys, struct absent *absent) {
    struct sorted *s = malloc(sizeof *s * (j->ncalls + 1));
    struct mirror m = {0};
    int all = 0;

    j->needed = calloc(j->ncalls * 2 + 1, sizeof *j->needed);
    if (!s || !j->needed) {
        free(s);
        return SQLITE_NOMEM;
    }
    for (size_t i = 0; i < j->ncalls; i++) {
        s[i] = (struct sorted){keys[i].meeting, i};
        all = keys[i].size > all ? keys[i].size : all;
    }
    qsort(s, j->ncalls, sizeof *s, by_key);
    for (size_t i = 0, n; i < j->ncalls; i += n) {
        for (n = 1; i + n < j->ncalls && s[i + n].key == s[i].key; n++)
            ;
        find_joining(j, keys, s + i, n);
        const struct meet_key *k = &keys[s[i].call];
        if (k->kind == MEET_SEND || k->kind == MEET_RECV) {
            meet_message(j, keys, s + i, n, &m);
            continue;
        }
        size_t last = meet(j, keys, s + i, n);
        if (k->kind == MEET_ALL)
            absent_met(absent, last, k->group, k->sort, k->size - (int)n, k->size == all);
    }
    absent_arrive(absent, j, &m);
    for (size_t i = 0; i < j->ncalls; i++)
        s[i] =
            (struct sorted){replay_mix(keys[i].peers, (uint64_t)j->rank[j->call[i].rank].stage), i};
    j->npeers = number(s, j->ncalls);
    for (size_t i = 0; i < j->ncalls; i++)
        j->call[s[i].call].peers = (int)s[i].key;
    free(s);
    int err = mirror_make(&m, j);
    for (size_t i = 0; i < m.n; i++)
        j->nlost += m.end[i].rank >= 0 && !m.end[i].arrives;
    mirror_free(&m);
    return err ? SQLITE_NOMEM : SQLITE_OK;
}
