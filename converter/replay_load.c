/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay_absent.h"
#include "replay_job.h"
#include "replay_mirror.h"
#include "since_row.h"

/* A process may have many traces, one after the other (segment_size): its calls go on from one to the next. A process is identified by its first trace. */
#define PROCESSES                                                                                  \
    "WITH process AS MATERIALIZED (SELECT id, min(id) OVER (PARTITION BY run, boot_id, pid, coalesce(process_ts, -id)) AS first FROM trace_file) "

/* Finds the attempt to replay, the largest of all runs: the number of its calls, and the first and last time. Only columns of comm's index by trace are
   read: of a long job, the table would take four times as long. */
static const char attempt_sql[] =
    "SELECT t.run, t.attempt, sum(c.n), min(c.first), max(c.last) FROM trace_file t "
    "JOIN (SELECT id >> 40 AS trace, count(*) AS n, min(ts) AS first, max(ts) AS last FROM comm GROUP BY id >> 40) c ON c.trace = t.id "
    "GROUP BY 1, 2 ORDER BY 3 DESC, 2 DESC LIMIT 1";
/* The attempt's calls from a time on. src_rank, dst_rank: the two ends of a message; of a collective with a root,
   the root: src_rank if it sends to all, dst_rank if it receives from all. */
static const char calls_sql[] = PROCESSES
    "SELECT p.first, c.rank, t.host, c.\"group\", c.op, c.seq, c.enter, c.exit, c.src_rank, c.dst_rank, c.group_size, c.run, c.attempt "
    "FROM comm_metrics c JOIN trace t ON t.id = c.trace_id JOIN process p ON p.id = t.id WHERE c.complete AND c.completion <> 'raised' AND c.group_size > 1 "
    "AND c.run IS ?1 AND c.attempt IS ?2 AND c.enter >= ?3 "
    "ORDER BY p.first, c.enter";
/* The pipeline stage of each process: as its roles say or, without roles, as seen: it sends or receives in its steps. A few messages besides a training
 * make no stages. */
static const char stages_sql[] = PROCESSES
    "SELECT p.first, \"index\" FROM (SELECT trace_id, \"index\", 0 AS worse, 0 AS n FROM roles WHERE dimension = 'pp' "
    "UNION ALL SELECT c.id >> 40, g.rank, 1, count(*) FROM comm c JOIN process_group g ON g.trace = c.id >> 40 AND g.pg = c.pg "
    "LEFT JOIN (SELECT id >> 40 AS trace, count(*) AS n FROM torch_step GROUP BY id >> 40) t ON t.trace = c.id >> 40 "
    "WHERE c.op IN ('send', 'recv') AND g.rank IS NOT NULL GROUP BY c.id >> 40, c.pg HAVING count(*) >= max(8, coalesce(t.n, 0) / 2)) s JOIN process p ON p.id = s.trace_id WHERE \"index\" IS NOT NULL "
    "ORDER BY p.first, worse DESC, n";
static const char traces_sql[] = PROCESSES
    "SELECT p.first, t.first_id, t.last_id FROM trace_file t JOIN process p ON p.id = t.id ORDER BY p.first, t.id";
static const char loading_sql[] =
    "SELECT ts / 1e9, duration / 1e9 FROM torch_call WHERE id BETWEEN ?1 AND ?2 AND stage = 4 AND duration IS NOT NULL";

enum kind { ALL, FROM_ROOT, TO_ROOT, SEND, RECV };

/* Hashes that decide which calls belong together, used until meetings and classes have numbers. */
struct key {
    uint64_t meeting, peers;
    uint64_t group, sort; /* of a collective: its group; the operation and the group's size */
    int other, size;      /* the rank at the other end of a message, -1: not known; of the group */
    enum kind kind;
    unsigned is_root : 1, is_later : 1; /* is_later: its group has had calls before */
};

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

uint64_t replay_hash(uint64_t h, const unsigned char *s) {
    for (; s && *s; s++)
        h = mix(h, *s);
    return mix(h, 256);
}

static enum kind kind_of(const char *op) {
    if (strcmp(op, "send") == 0)
        return SEND;
    if (strcmp(op, "recv") == 0)
        return RECV;
    if (strncmp(op, "broadcast", 9) == 0 || strncmp(op, "scatter", 7) == 0)
        return FROM_ROOT;
    if (strcmp(op, "reduce") == 0 || strcmp(op, "gather") == 0)
        return TO_ROOT;
    return ALL;
}

static int add_rank(struct replay_job *j, sqlite3_stmt *st) {
    struct replay_rank *more = realloc(j->rank, sizeof *more * (size_t)(j->nranks + 1));

    if (!more)
        return SQLITE_NOMEM;
    j->rank = more;
    const char *host = (const char *)sqlite3_column_text(st, 2);
    const char *run = (const char *)sqlite3_column_text(st, 11);
    if (!j->run && run)
        j->run = strdup(run);
    j->attempt = sqlite3_column_int64(st, 12);
    more[j->nranks++] = (struct replay_rank){.trace = sqlite3_column_int64(st, 0),
                                             .rank = sqlite3_column_int64(st, 1),
                                             .host = strdup(host ? host : ""),
                                             .stage = -1,
                                             .first = j->ncalls};
    return SQLITE_OK;
}

/* Chooses the attempt, and the time from which its calls are read: of a job with more calls than j->most, about the last j->most. All ranks begin at
 * that time. */
static int choose_calls(struct replay_job *j, sqlite3_stmt *calls, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, attempt_sql, -1, &st, NULL);

    j->part = 1;
    if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        double n = sqlite3_column_double(st, 2), first = sqlite3_column_double(st, 3) / 1e9,
               last = sqlite3_column_double(st, 4) / 1e9;
        if (j->most && n > (double)j->most)
            j->part = (double)j->most / n;
        sqlite3_bind_value(calls, 1, sqlite3_column_value(st, 0));
        sqlite3_bind_value(calls, 2, sqlite3_column_value(st, 1));
        j->since = j->part < 1 ? last - j->part * (last - first) : first - 1;
        sqlite3_bind_double(calls, 3, j->since);
        rc = SQLITE_DONE;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int load_calls(struct replay_job *j, struct key **keys, sqlite3 *db) {
    sqlite3_stmt *st;
    size_t cap = 0;
    int rc = sqlite3_prepare_v2(db, calls_sql, -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = choose_calls(j, st, db);
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (j->ncalls == cap) {
            cap = cap ? 2 * cap : 4096;
            struct replay_call *c = realloc(j->call, sizeof *c * cap);
            if (c)
                j->call = c;
            struct key *k = realloc(*keys, sizeof *k * cap);
            if (k)
                *keys = k;
            if (!c || !k) {
                rc = SQLITE_NOMEM;
                break;
            }
        }
        rc = SQLITE_OK;
        if (!j->nranks || j->rank[j->nranks - 1].trace != sqlite3_column_int64(st, 0))
            rc = add_rank(j, st);
        if (rc != SQLITE_OK)
            break;
        const unsigned char *op = sqlite3_column_text(st, 4);
        enum kind kind = kind_of(op ? (const char *)op : "");
        sqlite3_int64 rank = sqlite3_column_int64(st, 1), src = sqlite3_column_int64(st, 8),
                      dst = sqlite3_column_int64(st, 9);
        int is_message = kind == SEND || kind == RECV;
        uint64_t seq = (uint64_t)sqlite3_column_int64(st, 5),
                 group = replay_hash(1, sqlite3_column_text(st, 3)), meeting = mix(group, seq);
        if (is_message)
            meeting = mix(mix(mix(meeting, (uint64_t)src), (uint64_t)dst), 2);
        else
            meeting = replay_hash(meeting, op);
        /* Without a known root, it counts as a call in which all wait for all. */
        if ((kind == FROM_ROOT || kind == TO_ROOT) &&
            sqlite3_column_type(st, kind == FROM_ROOT ? 8 : 9) == SQLITE_NULL)
            kind = ALL;
        (*keys)[j->ncalls] = (struct key){
            .meeting = meeting,
            .group = group,
            .sort = replay_hash((uint64_t)sqlite3_column_int64(st, 10), op),
            .peers = mix(replay_hash(mix(seq, (uint64_t)sqlite3_column_int64(st, 10)), op),
                         is_message ? (uint64_t)(src - dst) : 0),
            .other = !is_message || sqlite3_column_type(st, kind == SEND ? 9 : 8) == SQLITE_NULL
                         ? -1
                     : kind == SEND ? (int)dst
                                    : (int)src,
            .size = sqlite3_column_int(st, 10),
            .kind = kind,
            .is_root = rank == (kind == FROM_ROOT ? src : dst),
            .is_later = seq > 1};
        j->call[j->ncalls++] = (struct replay_call){.enter = sqlite3_column_double(st, 6),
                                                    .exit = sqlite3_column_double(st, 7),
                                                    .in = -1,
                                                    .on = -1,
                                                    .rank = j->nranks - 1,
                                                    .is_send = kind == SEND};
        j->rank[j->nranks - 1].end = j->ncalls;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static struct replay_rank *rank_of(const struct replay_job *j, sqlite3_int64 trace) {
    for (int lo = 0, hi = j->nranks; lo < hi;) {
        int mid = lo + (hi - lo) / 2;
        if (j->rank[mid].trace == trace)
            return &j->rank[mid];
        *(j->rank[mid].trace < trace ? &lo : &hi) = j->rank[mid].trace < trace ? mid + 1 : mid;
    }
    return NULL;
}

static int load_stages(struct replay_job *j, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, stages_sql, -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct replay_rank *r = rank_of(j, sqlite3_column_int64(st, 0));
        if (r)
            r->stage = sqlite3_column_int(st, 1);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Returns the index of the first of a rank's calls that begins at `time` or later, or r->end if there is none. */
static size_t call_from(const struct replay_job *j, const struct replay_rank *r, double time) {
    size_t lo = r->first;

    for (size_t hi = r->end; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        if (j->call[mid].enter < time)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Adds the time of each load of data in a trace to the work during which it began. */
static int load_trace(struct replay_job *j, const struct replay_rank *r, sqlite3_stmt *st) {
    int rc;

    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        double begin = sqlite3_column_double(st, 0);
        size_t at = call_from(j, r, begin);
        if (at < r->end && j->call[at].work >= 0 && begin >= j->call[at].enter - j->call[at].work)
            j->call[at].loading += sqlite3_column_double(st, 1);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Reads how long the works loaded data. If only a job's last part is replayed, only that time is read: there are many times more calls of modules than
 * of communication. */
static int load_loading(struct replay_job *j, sqlite3 *db) {
    sqlite3_stmt *traces, *loading = NULL;
    int rc = sqlite3_prepare_v2(db, traces_sql, -1, &traces, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, loading_sql, -1, &loading, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(traces)) == SQLITE_ROW) {
        const struct replay_rank *r = rank_of(j, sqlite3_column_int64(traces, 0));
        int64_t from = sqlite3_column_int64(traces, 1), last = sqlite3_column_int64(traces, 2);
        rc = SQLITE_OK;
        if (r && j->part < 1)
            rc = since_row(db, "torch_call", from, last, (int64_t)(j->since * 1e9), &from);
        if (r && rc == SQLITE_OK) {
            sqlite3_bind_int64(loading, 1, from);
            sqlite3_bind_int64(loading, 2, last);
            rc = load_trace(j, r, loading);
        }
    }
    sqlite3_finalize(traces);
    sqlite3_finalize(loading);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- points, meetings, classes ---- */

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

static int make_points(struct replay_job *j) {
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
static void find_joining(struct replay_job *j, const struct key *keys, const struct sorted *s,
                         size_t n) {
    int was_met = 0;

    for (size_t i = 0; i < n; i++)
        was_met |= !is_first(j, s[i].call);
    for (size_t i = 0; was_met && i < n; i++)
        j->rank[j->call[s[i].call].rank].joins |=
            keys[s[i].call].is_later && is_first(j, s[i].call);
}

/* A message: the receiver waits for the sender. The sender waits for the receiver if it was still in its call when the receiver came. */
static void meet_message(struct replay_job *j, const struct key *keys, const struct sorted *s,
                         size_t n, struct mirror *m) {
    struct replay_call *a = &j->call[s[0].call], *b = n > 1 ? &j->call[s[1].call] : NULL;

    if (n == 1 && keys[s[0].call].other >= 0) /* the other end has no trace */
        mirror_add(m, j, keys[s[0].call].other, s[0].call, keys[s[0].call].kind == RECV);
    if (n != 2 || keys[s[0].call].kind == keys[s[1].call].kind)
        return;
    struct replay_call *send = keys[s[0].call].kind == SEND ? a : b, *recv = send == a ? b : a;
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

/* A collective. Its own time is what the last rank to come spent in it, the shortest of all durations: so clocks need not be compared. Returns that
 * rank's call. */
static size_t meet(struct replay_job *j, const struct key *keys, const struct sorted *s, size_t n) {
    double shortest = -1;
    size_t last = s[0].call;
    int m = j->nmeetings++;

    for (size_t i = 0; i < n; i++) {
        struct replay_call *c = &j->call[s[i].call];
        const struct key *k = &keys[s[i].call];
        int waits = k->kind == ALL || (int)k->is_root == (k->kind == TO_ROOT);
        if (k->kind == ALL || k->kind == TO_ROOT || k->is_root) {
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

static int make_meetings(struct replay_job *j, const struct key *keys, struct absent *absent) {
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
        const struct key *k = &keys[s[i].call];
        if (k->kind == SEND || k->kind == RECV) {
            meet_message(j, keys, s + i, n, &m);
            continue;
        }
        size_t last = meet(j, keys, s + i, n);
        if (k->kind == ALL)
            absent_met(absent, last, k->group, k->sort, k->size - (int)n, k->size == all);
    }
    absent_arrive(absent, j, &m);
    for (size_t i = 0; i < j->ncalls; i++)
        s[i] = (struct sorted){mix(keys[i].peers, (uint64_t)j->rank[j->call[i].rank].stage), i};
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

int replay_job_load(struct replay_job *j, sqlite3 *db) {
    struct absent absent = {0};
    struct key *keys = NULL;
    int rc = load_calls(j, &keys, db);

    j->nread = j->ncalls;
    if (rc == SQLITE_OK)
        rc = load_stages(j, db);
    if (rc == SQLITE_OK)
        rc = absent_load(&absent, j, db);
    if (rc == SQLITE_OK)
        rc = make_meetings(j, keys, &absent);
    absent_free(&absent);
    free(keys); /* before the points need as much memory */
    if (rc == SQLITE_OK)
        rc = make_points(j);
    if (rc == SQLITE_OK)
        rc = load_loading(j, db);
    return rc;
}

void replay_job_free(struct replay_job *j) {
    for (int i = 0; i < j->nranks; i++)
        free(j->rank[i].host);
    free(j->rank);
    free(j->run);
    free(j->call);
    free(j->point);
    free(j->needed);
}
