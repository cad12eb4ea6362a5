/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "replay_group.h"
#include "replay_job.h"

/* A class of calls that do the same. Of the works before them: the largest, the largest of another rank and of another host, and the median. */
struct peers {
    double most, second, median;
    double elsewhere; /* the largest work on another host than that of `most` */
    int rank, n;      /* rank: whose work `most` is; n: number of works */
};

/* The work of a pipeline stage, as the average of its ranks: in all, and before it sends. */
struct stage {
    double busy, sending;
    int ranks;
};

#define MOST_CALLS 1000000 /* each takes 150 bytes */

struct replay {
    struct replay_job job;
    struct peers *peers;
    struct stage *stage;
    double *late_rank, *late_node; /* by rank; by the index of the host's first rank */
    int *node, nstages;            /* node: index of the first rank of a rank's host */
    unsigned char *is_late;        /* by rank: one of `nlate` that are late together */
    int nlate;
    double length, seen;
    int loaded;         /* 0: not yet; -1: there is nothing to replay */
    sqlite3_int64 last; /* id of the last call in the database when it was read */
};

/* ---- the replay ---- */

struct meeting {
    double time; /* when the last rank so far came */
    int missing; /* number of ranks that have not come yet */
    int waiting; /* the first rank that waits here + 1, chained by `next` */
};

/* Replays the calls with these works. Returns the seconds from the first call to the last end; < 0: the replay gets stuck (the calls do not fit
 * together), or there is no memory. */
static double run(const struct replay_job *j, const double *work) {
    struct meeting *m = calloc((size_t)j->nmeetings + 1, sizeof *m);
    double *enter = malloc(sizeof *enter * (j->ncalls + 1)),
           *time = calloc((size_t)j->nranks + 1, sizeof *time), end = -1, begin = 0;
    size_t *at = calloc((size_t)j->nranks + 1, sizeof *at), done = 0;
    int *next = calloc((size_t)j->nranks + 1, sizeof *next),
        *ready = calloc((size_t)j->nranks + 1, sizeof *ready), n = 0;

    if (!m || !enter || !time || !at || !next || !ready)
        goto out;
    for (int i = 0; i < j->nmeetings; i++)
        m[i] = (struct meeting){-1e300, j->needed[i], 0};
    for (int r = 0; r < j->nranks; r++) {
        ready[n++] = r;
        if (r == 0 || j->call[j->rank[r].first].enter < begin)
            begin = j->call[j->rank[r].first].enter;
    }
    while (n) {
        int r = ready[--n];
        const struct replay_rank *rank = &j->rank[r];
        size_t points = 2 * (rank->end - rank->first);
        for (; at[r] < points; at[r]++, done++) {
            const struct replay_point *p = &j->point[2 * rank->first + at[r]];
            const struct replay_call *c = &j->call[p->call];
            if (!p->is_exit) {
                time[r] = c->work >= 0  ? time[r] + work[p->call]
                          : rank->joins ? 0 /* waits there for the others */
                                        : c->enter - begin;
                enter[p->call] = time[r];
                if (c->in < 0)
                    continue;
                struct meeting *in = &m[c->in];
                if (time[r] > in->time)
                    in->time = time[r];
                if (--in->missing == 0) {
                    for (; in->waiting; in->waiting = next[in->waiting - 1])
                        ready[n++] = in->waiting - 1;
                }
                continue;
            }
            double to = enter[p->call] + (c->exit - c->enter);
            if (c->on >= 0 && j->needed[c->on]) {
                struct meeting *on = &m[c->on];
                if (on->missing) {
                    next[r] = on->waiting;
                    on->waiting = r + 1;
                    break;
                }
                to = (on->time > enter[p->call] ? on->time : enter[p->call]) + c->transfer;
            }
            if (to > time[r])
                time[r] = to;
        }
    }
    if (done == 2 * j->ncalls) {
        for (int r = 0; r < j->nranks; r++) {
            if (time[r] > end)
                end = time[r];
        }
    }
out:
    free(m);
    free(enter);
    free(time);
    free(at);
    free(next);
    free(ready);
    return end;
}

/* ---- who is late ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int measure_peers(struct replay *r) {
    const struct replay_job *j = &r->job;
    size_t *first = calloc((size_t)j->npeers + 2, sizeof *first);
    double *works = malloc(sizeof *works * (j->ncalls + 1));

    r->peers = calloc((size_t)j->npeers + 1, sizeof *r->peers);
    if (!first || !works || !r->peers) {
        free(first);
        free(works);
        return SQLITE_NOMEM;
    }
    for (int i = 0; i < j->npeers; i++)
        r->peers[i] = (struct peers){-1, -1, -1, -1, -1, 0};
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        struct peers *p = &r->peers[c->peers];
        if (c->work < 0)
            continue;
        first[c->peers + 1]++;
        if (c->work > p->most) {
            if (p->rank >= 0 && p->rank != c->rank)
                p->second = p->most;
            p->most = c->work;
            p->rank = c->rank;
        } else if (c->rank != p->rank && c->work > p->second) {
            p->second = c->work;
        }
    }
    for (int i = 0; i < j->npeers; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        struct peers *p = &r->peers[c->peers];
        if (c->work < 0)
            continue;
        works[first[c->peers] + (size_t)p->n++] = c->work;
        if (r->node[c->rank] != r->node[p->rank] && c->work > p->elsewhere)
            p->elsewhere = c->work;
    }
    for (int i = 0; i < j->npeers; i++) {
        int n = r->peers[i].n;
        qsort(works + first[i], (size_t)n, sizeof *works, by_value);
        if (n)
            r->peers[i].median =
                (works[first[i] + (size_t)(n - 1) / 2] + works[first[i] + (size_t)n / 2]) / 2;
    }
    free(first);
    free(works);
    return SQLITE_OK;
}

static void measure_stages(struct replay *r) {
    const struct replay_job *j = &r->job;

    for (int i = 0; i < j->nranks; i++) {
        if (j->rank[i].stage >= 0)
            r->stage[j->rank[i].stage].ranks++;
    }
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        if (c->work < 0 || j->rank[c->rank].stage < 0)
            continue;
        struct stage *s = &r->stage[j->rank[c->rank].stage];
        s->busy += c->work / s->ranks;
        s->sending += c->is_send ? c->work / s->ranks : 0;
    }
}

static int measure(struct replay *r) {
    const struct replay_job *j = &r->job;
    size_t n = (size_t)j->nranks + 1;

    for (int i = 0; i < j->nranks; i++) {
        if (j->rank[i].stage >= r->nstages)
            r->nstages = j->rank[i].stage + 1;
    }
    r->late_rank = calloc(n, sizeof *r->late_rank);
    r->late_node = calloc(n, sizeof *r->late_node);
    r->stage = calloc((size_t)r->nstages + 1, sizeof *r->stage);
    r->node = calloc(n, sizeof *r->node);
    r->is_late = calloc(n, 1);
    int rc = SQLITE_NOMEM;
    if (r->late_rank && r->late_node && r->stage && r->node && r->is_late) {
        for (int i = 0; i < j->nranks; i++) {
            r->node[i] = i;
            for (int k = 0; k < i && r->node[i] == i; k++) {
                if (strcmp(j->rank[k].host, j->rank[i].host) == 0)
                    r->node[i] = k;
            }
        }
        measure_stages(r);
        rc = measure_peers(r);
    }
    if (rc == SQLITE_OK && (r->nlate = replay_group_find(j, r->is_late)) < 0)
        rc = SQLITE_NOMEM;
    double first = 0, last = 0;
    for (size_t i = 0; rc == SQLITE_OK && i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        const struct peers *p = &r->peers[c->peers];
        if (i == 0 || c->enter < first)
            first = c->enter;
        if (i == 0 || c->exit > last)
            last = c->exit;
        if (c->work < 0)
            continue;
        if (p->rank == c->rank && c->work == p->most) {
            r->late_rank[c->rank] += p->second >= 0 ? c->work - p->second : 0;
            r->late_node[r->node[c->rank]] += p->elsewhere >= 0 ? c->work - p->elsewhere : 0;
        }
    }
    r->seen = last - first;
    return rc;
}

/* ---- what if ---- */

/* Returns by how much a stage works more than the next slowest one. */
static double excess(const struct replay *r, int stage) {
    double next = -1;

    for (int i = 0; i < r->nstages; i++) {
        if (i != stage && r->stage[i].ranks && r->stage[i].busy > next)
            next = r->stage[i].busy;
    }
    return next >= 0 && r->stage[stage].busy > next ? r->stage[stage].busy - next : 0;
}

/* Writes the works of a scenario to `work`. Returns 0, or -1 if the job has nothing of that kind. */
static int scenario(const struct replay *r, const char *what, sqlite3_value *which, double *work) {
    const struct replay_job *j = &r->job;
    int is_rank = strcmp(what, "rank") == 0, is_node = strcmp(what, "node") == 0,
        is_stage = strcmp(what, "stage") == 0, is_group = strcmp(what, "group") == 0,
        is_median = strcmp(what, "median") == 0, is_data = strcmp(what, "data") == 0, any = 0;

    if ((is_rank || is_node || is_stage) && (!which || sqlite3_value_type(which) == SQLITE_NULL))
        return -1;
    sqlite3_int64 number = is_rank || is_stage ? sqlite3_value_int64(which) : 0;
    const char *host = is_node ? (const char *)sqlite3_value_text(which) : "";
    /* Who takes no longer than the slowest of the others that do the same. */
    unsigned char *in = calloc((size_t)j->nranks + 1, 1);
    double *others = malloc(sizeof *others * (size_t)(j->npeers + 1));
    if (!in || !others) {
        free(in);
        free(others);
        return -1;
    }
    for (int k = 0; k < j->nranks; k++) {
        in[k] = is_rank    ? j->rank[k].rank == number
                : is_node  ? strcmp(j->rank[k].host, host) == 0
                : is_group ? r->is_late[k]
                           : 0;
        any |= in[k];
    }
    for (int k = 0; k < j->npeers; k++)
        others[k] = -1;
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        if (!in[c->rank] && c->work > others[c->peers])
            others[c->peers] = c->work;
    }
    /* Work before a message is sent holds up the rest of the pipeline: a stage's excess is taken from that work first. */
    double sending = 1, other = 1;
    if (is_stage && number >= 0 && number < r->nstages) {
        const struct stage *s = &r->stage[number];
        double more = excess(r, (int)number);
        if (more > s->sending)
            other = 1 - (more - s->sending) / (s->busy - s->sending);
        sending = more < s->sending ? 1 - more / s->sending : 0;
    }
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        const struct replay_rank *rank = &j->rank[c->rank];
        const struct peers *p = &r->peers[c->peers];
        double to = c->work;
        if (c->work < 0)
            to = 0;
        else if (in[c->rank] && others[c->peers] >= 0)
            to = others[c->peers];
        else if (is_stage && rank->stage == number)
            to = c->work * (c->is_send ? sending : other);
        else if (is_median && p->n > 1)
            to = p->median;
        else if (is_data)
            to = c->work > c->loading ? c->work - c->loading : 0;
        any |= is_stage ? rank->stage == number : is_data ? c->loading > 0 : is_median;
        work[i] = is_median || to < c->work ? to : c->work < 0 ? 0 : c->work;
    }
    free(in);
    free(others);
    return any ? 0 : -1;
}

/* Returns the index of the N-th largest value above 0, or -1 if there are fewer. */
static int nth(const double *value, int n, int number) {
    int best = -1;

    for (int k = 0; k < number; k++) {
        int found = -1;
        for (int i = 0; i < n; i++) {
            if (value[i] > 0 && (best < 0 || value[i] < value[best]) &&
                (found < 0 || value[i] > value[found]))
                found = i;
        }
        if ((best = found) < 0)
            break;
    }
    return best;
}

static void clear(struct replay *r) {
    size_t most = r->job.most;

    replay_job_free(&r->job);
    free(r->peers);
    free(r->stage);
    free(r->late_rank);
    free(r->late_node);
    free(r->node);
    free(r->is_late);
    *r = (struct replay){.job.most = most};
}

static sqlite3_int64 last_call(sqlite3 *db) {
    sqlite3_stmt *st;
    sqlite3_int64 last = -1;

    if (sqlite3_prepare_v2(db, "SELECT max(id) FROM comm", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        last = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return last;
}

static int load(struct replay *r, sqlite3 *db) {
    int rc = replay_job_load(&r->job, db);
    double *work = rc == SQLITE_OK ? malloc(sizeof *work * (r->job.ncalls + 1)) : NULL;

    if (rc == SQLITE_OK)
        rc = work ? measure(r) : SQLITE_NOMEM;
    for (size_t i = 0; rc == SQLITE_OK && i < r->job.ncalls; i++)
        work[i] = r->job.call[i].work;
    if (rc == SQLITE_OK)
        r->length = run(&r->job, work);
    r->loaded = rc == SQLITE_OK && r->length > 0 ? 1 : -1;
    free(work);
    return rc;
}

/* The ranks of a stage, or (stage -1) those that are late together. */
static void list_ranks(sqlite3_context *ctx, const struct replay *r, int stage) {
    sqlite3_str *s = sqlite3_str_new(NULL);

    for (int i = 0; i < r->job.nranks; i++) {
        if (stage < 0 ? r->is_late[i] : r->job.rank[i].stage == stage)
            sqlite3_str_appendf(s, "%s%lld", sqlite3_str_length(s) ? "," : "[",
                                r->job.rank[i].rank);
    }
    sqlite3_str_appendall(s, "]");
    sqlite3_result_text(ctx, sqlite3_str_finish(s), -1, sqlite3_free);
}

static void replay(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct replay *r = sqlite3_user_data(ctx);
    const char *what = (const char *)sqlite3_value_text(argv[0]);
    sqlite3_value *which = argc > 1 ? argv[1] : NULL;

    if (!what)
        return;
    sqlite3 *db = sqlite3_context_db_handle(ctx);
    if (strcmp(what, "most") == 0) {
        r->job.most = which ? (size_t)sqlite3_value_int64(which) : MOST_CALLS;
        clear(r);
        return;
    }
    sqlite3_int64 last = last_call(db);
    if (!r->loaded || r->last != last) {
        clear(r);
        int rc = load(r, db);
        r->last = last;
        if (rc != SQLITE_OK) {
            clear(r);
            sqlite3_result_error_code(ctx, rc);
            return;
        }
    }
    if (strcmp(what, "calls") == 0) {
        sqlite3_result_int64(ctx, (sqlite3_int64)r->job.nread);
        return;
    }
    if (strcmp(what, "lost") == 0) {
        sqlite3_result_int64(ctx, (sqlite3_int64)r->job.nlost);
        return;
    }
    if (strcmp(what, "absent") == 0) {
        sqlite3_result_int64(ctx, r->job.nabsent);
        return;
    }
    if (r->loaded < 0)
        return;
    int number = which ? sqlite3_value_int(which) : 0, i;
    if (strcmp(what, "attempt") == 0) {
        sqlite3_result_int64(ctx, r->job.attempt);
    } else if (strcmp(what, "run") == 0) {
        sqlite3_result_text(ctx, r->job.run, -1, SQLITE_TRANSIENT);
    } else if (strcmp(what, "length") == 0 || strcmp(what, "seen") == 0) {
        sqlite3_result_double(ctx, *what == 'l' ? r->length : r->seen);
    } else if (strcmp(what, "part") == 0) {
        sqlite3_result_double(ctx, r->job.part);
    } else if (strcmp(what, "nth rank") == 0) {
        if ((i = nth(r->late_rank, r->job.nranks, number)) >= 0)
            sqlite3_result_int64(ctx, r->job.rank[i].rank);
    } else if (strcmp(what, "nth node") == 0) {
        if ((i = nth(r->late_node, r->job.nranks, number)) >= 0)
            sqlite3_result_text(ctx, r->job.rank[i].host, -1, SQLITE_TRANSIENT);
    } else if (strcmp(what, "late") == 0) {
        if (r->nlate)
            list_ranks(ctx, r, -1);
    } else if (strcmp(what, "ranks of stage") == 0) {
        if (which && number >= 0 && number < r->nstages && r->stage[number].ranks)
            list_ranks(ctx, r, number);
    } else if (strcmp(what, "nth stage") == 0) {
        for (i = 0; i < r->nstages && !(excess(r, i) > 0); i++)
            ;
        if (number == 1 && i < r->nstages)
            sqlite3_result_int(ctx, i);
    } else {
        double *work = malloc(sizeof *work * (r->job.ncalls + 1)), took = -1;
        if (!work) {
            sqlite3_result_error_nomem(ctx);
            return;
        }
        if (scenario(r, what, which, work) == 0)
            took = run(&r->job, work);
        if (took >= 0)
            sqlite3_result_double(ctx, r->length - took);
        free(work);
    }
}

static void destroy(void *arg) {
    clear(arg);
    free(arg);
}

int replay_register(sqlite3 *db) {
    struct replay *r = calloc(1, sizeof *r);

    if (r)
        r->job.most = MOST_CALLS;
    return r ? sqlite3_create_function_v2(db, "replay", -1, SQLITE_UTF8, r, replay, NULL, NULL,
                                          destroy)
             : SQLITE_NOMEM;
}
