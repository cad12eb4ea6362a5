/* SPDX-License-Identifier: Apache-2.0 */
#include "flame_sums.h"

#include <stdlib.h>
#include <string.h>

static struct sum *find(struct sum *slots, size_t mask, int64_t thread, int64_t stack) {
    uint64_t h =
        ((uint64_t)thread * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)stack * 0xc2b2ae3d27d4eb4full);

    for (h ^= h >> 29;; h++) {
        struct sum *s = &slots[h & mask];
        if (!s->thread || (s->thread == thread && s->stack == stack))
            return s;
    }
}

static int grow(struct sums *s) {
    size_t mask = s->mask ? s->mask * 2 + 1 : 1023;
    struct sum *slots = calloc(mask + 1, sizeof *slots);

    if (!slots)
        return SQLITE_NOMEM;
    for (size_t i = 0; s->slots && i <= s->mask; i++) {
        if (s->slots[i].thread)
            *find(slots, mask, s->slots[i].thread, s->slots[i].stack) = s->slots[i];
    }
    free(s->slots);
    s->slots = slots;
    s->mask = mask;
    return SQLITE_OK;
}

int sums_add(struct sums *s, int64_t thread, int64_t stack, uint64_t weight) {
    if (s->n * 2 >= s->mask && grow(s) != SQLITE_OK)
        return SQLITE_NOMEM;
    struct sum *sum = find(s->slots, s->mask, thread, stack);
    s->n += !sum->thread;
    sum->thread = thread;
    sum->stack = stack;
    sum->weight += weight;
    return SQLITE_OK;
}

static int by_thread(const void *a, const void *b) {
    const struct sum *x = a, *y = b;

    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/*
 * Each tick of the sampler stands for the period at its time. If there is one period throughout, ticks
 * are counted; else a tick counts as its period in units of the shortest one.
 */
static int find_tick(double *tick, sqlite3 *db, int *mixed) {
    sqlite3_stmt *st;
    int rc =
        sqlite3_prepare_v2(db, "SELECT min(ns), max(ns) FROM period WHERE ns > 0", -1, &st, NULL);

    if (rc != SQLITE_OK)
        return rc;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        *tick = sqlite3_column_double(st, 0) / 1e9;
        *mixed = sqlite3_column_int64(st, 0) != sqlite3_column_int64(st, 1);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc;
}

int sums_each(sqlite3 *db, const struct fold *fold, double *tick, sums_row *row, void *ctx) {
    static const char each[] = "s.count";
    static const char by_period[] =
        "CAST(s.count * coalesce((SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts"
        " ORDER BY p.since DESC LIMIT 1), t.period_ns) / ?4 + 0.5 AS INTEGER)";
    /* A thread that waits off a CPU is idle, unless it is a main thread: what that waits for, the whole program waits for. A helper process's
     * main thread is idle, too: it waits for work. */
    static const char busy[] =
        " AND (s.flags & 1 OR t.first_id + s.thread IN (SELECT h.id FROM thread h JOIN trace_file x ON x.id = h.trace"
        " WHERE h.tid = x.pid AND coalesce(x.role, '') NOT IN ('launcher', 'dataloader')))";
    sqlite3_stmt *st = NULL;
    int mixed = 0, rc, step = SQLITE_DONE;

    *tick = 0;
    if ((rc = find_tick(tick, db, &mixed)) != SQLITE_OK)
        return rc;
    char *sql = sqlite3_mprintf(
        "SELECT t.first_id + s.thread, s.stack, %s, min(%d, max(0, (s.ts - t.start_ts) * %d / max(1, t.end_ts - t.start_ts))) FROM trace_file t"
        " CROSS JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id"
        " WHERE (?2 < 0 OR t.pid = ?2) AND (?3 < 0 OR t.rank = ?3) AND (?1 = 0 OR s.flags & 1)%s%s",
        mixed ? by_period : each, SUMS_PARTS - 1, SUMS_PARTS, fold->run ? " AND t.run = ?5" : "",
        fold->idle ? "" : busy);
    if (!sql)
        return SQLITE_NOMEM;
    rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    sqlite3_free(sql);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int(st, 1, fold->cpu);
        sqlite3_bind_int64(st, 2, fold->pid);
        sqlite3_bind_int64(st, 3, fold->rank);
        if (fold->run)
            sqlite3_bind_text(st, 5, fold->run, -1, SQLITE_STATIC);
        if (mixed)
            sqlite3_bind_double(st, 4, *tick * 1e9);
        while (rc == SQLITE_OK && (step = sqlite3_step(st)) == SQLITE_ROW)
            rc = row(ctx, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                     (uint64_t)sqlite3_column_int64(st, 2), (unsigned)sqlite3_column_int(st, 3));
        if (rc == SQLITE_OK && step != SQLITE_DONE)
            rc = step;
    }
    sqlite3_finalize(st);
    return rc;
}

static int add(void *ctx, int64_t thread, int64_t stack, uint64_t weight, unsigned part) {
    (void)part;
    return sums_add(ctx, thread, stack, weight);
}

int sums_read(struct sums *s, sqlite3 *db, const struct fold *fold) {
    memset(s, 0, sizeof *s);
    int rc = sums_each(db, fold, &s->tick, add, s);
    if (rc == SQLITE_OK)
        sums_list(s);
    return rc;
}

void sums_list(struct sums *s) {
    size_t k = 0;

    for (size_t i = 0; s->slots && i <= s->mask; i++) {
        if (s->slots[i].thread)
            s->slots[k++] = s->slots[i];
    }
    s->sum = s->slots;
    if (s->n)
        qsort(s->sum, s->n, sizeof *s->sum, by_thread);
}

void sums_free(struct sums *s) {
    free(s->slots);
    memset(s, 0, sizeof *s);
}
