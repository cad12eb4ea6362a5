/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay_absent.h"
#include "replay_job.h"
#include "replay_meet.h"
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
    "SELECT p.first, c.rank, t.host, c.\"group\", c.op, c.seq, c.enter, c.exit, c.src_rank, c.dst_rank, c.group_size, c.run, c.attempt, t.boot_id, t.clock_group, b.uncertainty_ns / 1e9 "
    "FROM comm_metrics c JOIN trace_file t ON t.id = c.trace_id JOIN process p ON p.id = t.id LEFT JOIN clock_boot b ON b.boot_id = t.boot_id WHERE c.complete AND c.completion <> 'raised' AND c.group_size > 1 "
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

uint64_t replay_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

uint64_t replay_hash(uint64_t h, const unsigned char *s) {
    for (; s && *s; s++)
        h = replay_mix(h, *s);
    return replay_mix(h, 256);
}

static enum meet_kind kind_of(const char *op) {
    if (strcmp(op, "send") == 0)
        return MEET_SEND;
    if (strcmp(op, "recv") == 0)
        return MEET_RECV;
    if (strncmp(op, "broadcast", 9) == 0 || strncmp(op, "scatter", 7) == 0)
        return MEET_FROM_ROOT;
    if (strcmp(op, "reduce") == 0 || strcmp(op, "gather") == 0)
        return MEET_TO_ROOT;
    return MEET_ALL;
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
    const char *boot = (const char *)sqlite3_column_text(st, 13);
    int is_known =
        sqlite3_column_type(st, 14) != SQLITE_NULL && sqlite3_column_type(st, 15) != SQLITE_NULL;
    more[j->nranks++] =
        (struct replay_rank){.trace = sqlite3_column_int64(st, 0),
                             .rank = sqlite3_column_int64(st, 1),
                             .host = strdup(host ? host : ""),
                             .stage = -1,
                             .boot = boot ? replay_hash(1, (const unsigned char *)boot) : 0,
                             .clock = sqlite3_column_int64(st, 14),
                             .uncertainty = is_known ? sqlite3_column_double(st, 15) : -1,
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

static int load_calls(struct replay_job *j, struct meet_key **keys, sqlite3 *db) {
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
            struct meet_key *k = realloc(*keys, sizeof *k * cap);
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
        enum meet_kind kind = kind_of(op ? (const char *)op : "");
        sqlite3_int64 rank = sqlite3_column_int64(st, 1), src = sqlite3_column_int64(st, 8),
                      dst = sqlite3_column_int64(st, 9);
        int is_message = kind == MEET_SEND || kind == MEET_RECV;
        uint64_t seq = (uint64_t)sqlite3_column_int64(st, 5),
                 group = replay_hash(1, sqlite3_column_text(st, 3)),
                 meeting = replay_mix(group, seq);
        if (is_message)
            meeting = replay_mix(replay_mix(replay_mix(meeting, (uint64_t)src), (uint64_t)dst), 2);
        else
            meeting = replay_hash(meeting, op);
        /* Without a known root, it counts as a call in which all wait for all. */
        if ((kind == MEET_FROM_ROOT || kind == MEET_TO_ROOT) &&
            sqlite3_column_type(st, kind == MEET_FROM_ROOT ? 8 : 9) == SQLITE_NULL)
            kind = MEET_ALL;
        (*keys)[j->ncalls] = (struct meet_key){
            .meeting = meeting,
            .group = group,
            .sort = replay_hash((uint64_t)sqlite3_column_int64(st, 10), op),
            .peers =
                replay_mix(replay_hash(replay_mix(seq, (uint64_t)sqlite3_column_int64(st, 10)), op),
                           is_message ? (uint64_t)(src - dst) : 0),
            .other =
                !is_message || sqlite3_column_type(st, kind == MEET_SEND ? 9 : 8) == SQLITE_NULL
                    ? -1
                : kind == MEET_SEND ? (int)dst
                                    : (int)src,
            .size = sqlite3_column_int(st, 10),
            .kind = kind,
            .is_root = rank == (kind == MEET_FROM_ROOT ? src : dst),
            .is_later = seq > 1};
        j->call[j->ncalls++] = (struct replay_call){.enter = sqlite3_column_double(st, 6),
                                                    .exit = sqlite3_column_double(st, 7),
                                                    .in = -1,
                                                    .on = -1,
                                                    .rank = j->nranks - 1,
                                                    .is_send = kind == MEET_SEND};
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

int replay_job_load(struct replay_job *j, sqlite3 *db) {
    struct absent absent = {0};
    struct meet_key *keys = NULL;
    int rc = load_calls(j, &keys, db);

    j->nread = j->ncalls;
    if (rc == SQLITE_OK)
        rc = load_stages(j, db);
    if (rc == SQLITE_OK)
        rc = absent_load(&absent, j, db);
    if (rc == SQLITE_OK)
        rc = meet_make(j, keys, &absent);
    absent_free(&absent);
    free(keys); /* before the points need as much memory */
    if (rc == SQLITE_OK)
        rc = meet_points(j);
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
