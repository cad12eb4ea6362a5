/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "torch_rows.h"

#define LAST_STEPS 64

static int write_sums(struct load *l, const struct torch_state *t) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(l->db, "INSERT INTO torch_module_total VALUES(?,?,?,?,?,?,?,?,0,0)",
                                -1, &st, NULL);

    for (uint32_t id = 1; rc == SQLITE_OK && id <= t->summed.n; id++) {
        const uint64_t *key = keys_key(&t->summed, id, NULL);
        const struct torch_sum *s = &t->sums[id - 1];
        const int64_t v[] = {l->trace,        t->base + torch_rows_module(key[0], (unsigned)key[1]),
                             (int64_t)key[1], s->calls,
                             s->timed,        s->ns,
                             s->self_ns,      s->longest};
        for (int i = 0; i < 8; i++)
            sqlite3_bind_int64(st, i + 1, v[i]);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

static int write_steps(struct load *l, const struct torch_state *t) {
    sqlite3_stmt *st;
    struct clock_map *c = &l->meta->clock;
    int rc = sqlite3_prepare_v2(l->db, "INSERT INTO torch_step VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
                                -1, &st, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < t->steps.n; i++) {
        const struct torch_step whole = torch_steps_whole(&t->steps.s[i]), *s = &whole;
        if ((!s->end && !s->seq && !s->ns[TORCH_DATA]) || s->source == TORCH_WITHIN ||
            s->source == TORCH_PART)
            continue; /* nothing came after the last end, or it is part of the next step */
        if (l->shared.hi && (s->begin > l->shared.hi || (s->end && s->end < l->shared.lo)))
            continue;
        sqlite3_bind_int64(st, 1, t->base + (int64_t)(t->steps.dropped + i) + 1);
        sqlite3_bind_int64(st, 2, clock_utc(c, s->begin));
        if (s->end)
            sqlite3_bind_int64(st, 3, (int64_t)(s->end - s->begin));
        else
            sqlite3_bind_null(st, 3);
        sqlite3_bind_int64(st, 4, (int64_t)s->number);
        sqlite3_bind_int(st, 5, torch_steps_by_root(s->source) ? TORCH_BY_ROOT : (int)s->source);
        /* negative: the time of an optimizer in a hook, of a backward pass that has not ended */
        for (int k = 0; k < TORCH_PARTS; k++)
            sqlite3_bind_int64(st, 6 + k, s->ns[k] > 0 ? s->ns[k] : 0);
        for (int k = 0; k < TORCH_OPTIMIZER + 1; k++)
            sqlite3_bind_int64(st, 10 + k, (int64_t)s->count[k]);
        if (s->told)
            sqlite3_bind_int64(st, 13, clock_utc(c, s->told));
        else
            sqlite3_bind_null(st, 13);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Corrects the rows that carry step numbers which turned out to be none: during evaluation they get no step, during the first step that step. */
static int correct_numbers(struct load *l, const struct torch_state *t) {
    static const char *const tables[] = {"memory_step", "variable", "event", "trigger_event"};
    struct clock_map *c = &l->meta->clock;
    char *sql;
    int rc = SQLITE_OK;
    if (!t->steps.n)
        return rc;
    const struct torch_first first = torch_steps_first(&t->steps);
    for (int i = 0; first.since && i < 4 && rc == SQLITE_OK; i++) {
        sql = sqlite3_mprintf("UPDATE %s SET step = CASE WHEN ts > %lld THEN %lld END"
                              " WHERE id > %lld AND id <= %lld AND ts <= %lld",
                              tables[i], clock_utc(c, first.since), (long long)first.number,
                              (long long)t->base, (long long)(t->base | 0xffffffffffll),
                              clock_utc(c, first.until ? first.until : INT64_MAX));
        rc = sql ? sqlite3_exec(l->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    return rc;
}

/* Deletes rows of the previous conversion whose records are read again now. */
int torch_tables_forget(struct load *l, const struct torch_state *t) {
    int64_t last = t->base | 0xffffffffff;
    char *sql =
        sqlite3_mprintf("DELETE FROM torch_call WHERE id BETWEEN %lld AND %lld;"
                        "DELETE FROM torch_step WHERE id BETWEEN %lld AND %lld;"
                        "DELETE FROM torch_open WHERE id BETWEEN %lld AND %lld;",
                        t->base + t->begun + 1, last, t->base + (int64_t)t->steps.dropped + 1, last,
                        t->base + t->begun + 1, last);
    int rc = sql ? sqlite3_exec(l->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    for (size_t i = 0; i < t->nthreads; i++)
        for (uint32_t k = 0; k < t->threads[i]->n && rc == SQLITE_OK; k++) {
            sql = sqlite3_mprintf("DELETE FROM torch_call WHERE id = %lld",
                                  t->threads[i]->open[k].id);
            rc = sql ? sqlite3_exec(l->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
            sqlite3_free(sql);
        }
    return rc;
}

int torch_tables_any(const struct reader *r) {
    size_t i = 0;

    while (i < reader_blocks(r) && !(reader_block(r, i)->types >> TRACE_torch_calls & 1))
        i++;
    return i < reader_blocks(r);
}

int torch_tables_last(struct load *l, struct torch_state *t) {
    const struct torch_steps *s = &t->steps;
    size_t n = s->n > LAST_STEPS ? s->n - LAST_STEPS : 0;
    int64_t before = -1;
    char sql[96];

    for (size_t i = 1; i < s->n; i++) /* not in order: the last step is not known */
        n = s->s[i].begin < s->s[i - 1].begin ? 0 : n;
    for (size_t i = 0; i < n; i++)
        if (torch_steps_is(&s->s[i]) && (int64_t)s->s[i].number > before)
            before = (int64_t)s->s[i].number;
    t->since = n ? s->s[n].begin : 0;
    snprintf(sql, sizeof sql,
             n ? "INSERT OR REPLACE INTO torch_read VALUES(-%u, %lld)"
               : "DELETE FROM torch_read WHERE trace = -%u",
             l->trace, (long long)before);
    return sqlite3_exec(l->db, sql, NULL, NULL, NULL);
}

int torch_tables_keep(struct load *l, const uint8_t *p, size_t n) {
    sqlite3_stmt *st;

    int rc = sqlite3_prepare_v2(l->db, "INSERT INTO torch_read VALUES(?, ?)", -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(st, 1, l->trace);
    sqlite3_bind_blob64(st, 2, p, n, SQLITE_STATIC);
    sqlite3_step(st);
    return sqlite3_finalize(st);
}

/* Takes what torch_read has of the trace out of it. */
int torch_tables_kept(struct load *l, uint8_t **p, size_t *n) {
    char sql[64];
    sqlite3_stmt *st;

    snprintf(sql, sizeof sql, "SELECT state FROM torch_read WHERE trace = %u", l->trace);
    int rc = sqlite3_prepare_v2(l->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        *n = (size_t)sqlite3_column_bytes(st, 0);
        if ((*p = malloc(*n + 1)))
            memcpy(*p, sqlite3_column_blob(st, 0), *n);
        else
            rc = SQLITE_NOMEM;
    }
    int ended = sqlite3_finalize(st);
    rc = rc == SQLITE_OK ? ended : rc;
    snprintf(sql, sizeof sql, "DELETE FROM torch_read WHERE trace = %u", l->trace);
    return rc == SQLITE_OK ? sqlite3_exec(l->db, sql, NULL, NULL, NULL) : rc;
}

/* How long after the first step that an optimizer or the program ended late records of another thread may still be about a step before it. */
#define LATE_NS 10000000000u

int torch_tables_number(struct load *l) {
    struct reader *r = l->shared.reader;
    struct torch_state t = {.base = (int64_t)((uint64_t)l->trace << 40)};
    struct reader_data data = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    struct torch_decode d;
    struct torch_item e;
    uint64_t known = 0; /* time of the record of that step */
    int err = 0;

    for (size_t i = 0; err != -ENOMEM && i < reader_blocks(r); i++) {
        const struct reader_block *b = reader_block(r, i);
        if (known && b->first_ts > known + LATE_NS)
            break;
        if (!reader_may_hold(r, i, 1ull << TRACE_torch_calls) ||
            (err = reader_load(r, i, &data)) != 0)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (!err && trace_rows_next(&rows, 1ull << TRACE_torch_calls, v) > 0) {
            if (!t.steps.n && v[TRACE_torch_calls_step].u > t.steps.dropped_number)
                t.steps.dropped_number = v[TRACE_torch_calls_step].u;
            torch_decode_start(&d, v[TRACE_torch_calls_ts].u, v[TRACE_torch_calls_events].p,
                               v[TRACE_torch_calls_events].n);
            while (!err && torch_decode_next(&d, &e) > 0) {
                err = torch_steps_event(&t.steps, v[TRACE_torch_calls_tid].u, &e);
                if (!known && e.kind == TORCH_STEP && e.arg != TORCH_EVALUATION &&
                    !torch_steps_by_root((unsigned)e.arg))
                    known = e.ts;
            }
        }
    }
    reader_data_free(&data);
    if (err != -ENOMEM)
        err = torch_steps_ready(&t.steps);
    int rc = err == -ENOMEM ? SQLITE_NOMEM : correct_numbers(l, &t);
    torch_state_free(&t);
    return rc;
}

int torch_tables_write(struct load *l, const struct torch_state *t) {
    int rc = write_sums(l, t);

    if (rc == SQLITE_OK)
        rc = write_steps(l, t);
    return rc == SQLITE_OK ? correct_numbers(l, t) : rc;
}
