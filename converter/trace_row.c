/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "text.h"

int trace_row_loss(struct trace_row *t) {
    const struct reader_loss *loss = &t->loss;
    uint64_t *total = &t->lost;
    const struct {
        const char *reason;
        uint64_t count;
    } found[] = {
        {"damaged_block_records", loss->damaged_records}, /* the only ones that count as records */
        {"unresolved_stack", t->unresolved},
        {"damaged_blocks", loss->damaged_blocks},
        {"damaged_bytes", loss->damaged_bytes},
        {"missing_blocks", loss->missing_blocks},
        {"repeated_blocks", loss->repeated_blocks},
        {"newer_blocks", loss->newer_blocks},
        {"excess_blocks", loss->excess_blocks},
        {"wrong_hints", loss->wrong_hints},
        {"unknown_blocks", loss->unknown_blocks},
        {"cut_off_bytes", t->in->recording ? 0 : loss->tail_bytes},
    };
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(t->db, "INSERT INTO lost VALUES(?,?,?)", -1, &st, NULL);

    *total = loss->damaged_records;
    for (size_t i = 0; rc == SQLITE_OK && i < TRACE_NLOST + sizeof found / sizeof *found; i++) {
        const char *reason =
            i < TRACE_NLOST ? trace_lost_name((unsigned)i) : found[i - TRACE_NLOST].reason;
        uint64_t count = i < TRACE_NLOST ? t->totals.lost[i] : found[i - TRACE_NLOST].count;
        if (count == 0)
            continue;
        if (i < TRACE_NLOST)
            *total += count;
        sqlite3_bind_int64(st, 1, t->trace);
        sqlite3_bind_text(st, 2, reason, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, (sqlite3_int64)count);
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(t->db);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    /* add those of forked children that left no trace (load.c) */
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(t->db,
                                "SELECT sum(count) FROM lost WHERE trace = ? AND reason = 'child'",
                                -1, &st, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, t->trace);
        *total += sqlite3_step(st) == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
        rc = sqlite3_finalize(st);
    }
    return rc;
}

/* Returns whether another process has finished the trace. Before end.last it did so for killed ones only, as far as can be told. */
static int by_another(const struct meta *m) {
    return m->end_last || (m->end_reason && strcmp(m->end_reason, "killed") == 0);
}

/* Returns the last time that the process itself recorded. When another process has finished the trace, the `end` record and its time are by
 * that process. */
static uint64_t last_recorded(const struct meta *m, const struct reader *r, uint64_t last_ts) {
    uint64_t last = 0;

    if (m->end_last)
        return m->end_last < last_ts ? m->end_last : last_ts;
    if (!by_another(m))
        return last_ts;
    for (size_t i = 0; i < reader_blocks(r); i++) { /* a version that did not write end.last */
        const struct reader_block *b = reader_block(r, i);
        if (b->last_ts != m->end_ts && b->last_ts > last && b->last_ts <= last_ts)
            last = b->last_ts;
    }
    return last ? last : last_ts;
}

int trace_row_write(const struct trace_row *t, int complete) {
    static const char sql[] =
        "INSERT INTO trace_file VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,"
        "?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28,?29,?30,?31,?32,?33,?34,?35,?36,?37,?38,?39,?40,0,NULL,?37)";
    struct meta *m = t->meta;
    const struct reader_totals *s = &t->totals;
    sqlite3_int64 base = (sqlite3_int64)((uint64_t)t->trace << 40);
    char python[32];
    char *name = text_utf8(t->in->path, strlen(t->in->path), NULL), *numbered;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(t->db, sql, -1, &st, NULL);

    if (name && t->part > 1) {
        int n = asprintf(&numbered, "%s#%u", name, t->part);
        free(name);
        name = n < 0 ? NULL : numbered;
    }
    if (rc != SQLITE_OK || !name) {
        sqlite3_finalize(st);
        free(name);
        return name ? rc : SQLITE_NOMEM;
    }
    text_python(m->python, python);
    sqlite3_bind_int64(st, 1, t->trace);
    sqlite3_bind_text(st, 2, name, -1, free);
    bind_text(st, 3, m->host);
    bind_text(st, 4, m->boot_id);
    bind_known(st, 5, m->has_process, (int64_t)m->pid);
    bind_known(st, 6, m->has_process, (int64_t)m->ppid);
    bind_known(st, 7, m->has_process, (int64_t)m->uid);
    bind_known(st, 8, m->rank >= 0, m->rank);
    bind_known(st, 9, m->local_rank >= 0, m->local_rank);
    bind_known(st, 10, m->world_size >= 0, m->world_size);
    bind_text(st, 11, m->exe);
    bind_text(st, 12, m->command);
    bind_text(st, 13, m->cwd);
    bind_text(st, 14, python);
    bind_text(st, 15, m->agent);
    bind_text(st, 16, m->how);
    bind_known(st, 17, m->process_start != 0, clock_utc(&m->clock, m->process_start));
    bind_known(st, 18, s->last_ts != 0, clock_utc(&m->clock, s->first_ts));
    uint64_t last = last_recorded(m, t->reader, s->last_ts);
    bind_known(st, 19, s->last_ts != 0, clock_utc(&m->clock, last));
    bind_text(st, 20, m->end_reason);
    sqlite3_bind_int(st, 21, complete);
    sqlite3_bind_int64(st, 22, (sqlite3_int64)reader_size(t->reader));
    sqlite3_bind_int64(st, 23, (sqlite3_int64)reader_blocks(t->reader));
    sqlite3_bind_int64(st, 24, (sqlite3_int64)s->records);
    sqlite3_bind_int64(st, 25, (sqlite3_int64)t->lost);
    int lines = t->boot && t->boot->method >= ALIGN_MESSAGES;
    bind_text(st, 26, lines ? align_method_name(t->boot->method) : m->clock.n ? "anchors" : "none");
    sqlite3_bind_int64(st, 27, (sqlite3_int64)m->clock_anchors);
    if (lines)
        bind_known(st, 28, t->boot->uncertainty >= 0, (int64_t)t->boot->uncertainty);
    else
        bind_known(st, 28, m->clock.n > 0, (int64_t)m->clock.uncertainty);
    bind_known(st, 29, m->nperiods > 0, (int64_t)meta_period_at(m, UINT64_MAX));
    sqlite3_bind_int64(st, 30, base);
    sqlite3_bind_int64(st, 31, base | 0xffffffffff);
    bind_text(st, 32, m->role);
    bind_text(st, 33, m->master);
    bind_known(st, 34, by_another(m) && last != m->end_ts, clock_utc(&m->clock, m->end_ts));
    bind_known(st, 35, m->end_signal != 0, (int64_t)m->end_signal);
    sqlite3_bind_int64(st, 36, (sqlite3_int64)m->nperiods);
    bind_text(st, 37, m->run);
    bind_text(st, 38, m->job);
    char recording[176] = "";
    if (t->boot)
        snprintf(recording, sizeof recording, "%s%s", t->partial ? "part " : "", t->recording);
    sqlite3_bind_text(st, 39, t->boot ? recording : NULL, -1, SQLITE_TRANSIENT);
    bind_known(st, 40, t->boot != NULL, t->boot ? (int64_t)t->boot->group : 0);
    rc = sqlite3_step(st);
    int rc2 = sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc2;
}

int trace_row_damage(const struct trace_row *t, char *line, size_t size) {
    const struct reader_loss *l = &t->loss;
    char text[400] = "";
    size_t n = 0;
    int damaged = l->damaged_blocks || l->missing_blocks || l->damaged_bytes || l->excess_blocks;

#define PART(...)                                                                                  \
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", n ? ", " : ""),                         \
        n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    if (l->damaged_blocks)
        PART("%llu damaged block%s (%llu records)", (unsigned long long)l->damaged_blocks,
             l->damaged_blocks == 1 ? "" : "s", (unsigned long long)l->damaged_records);
    if (l->missing_blocks)
        PART("%llu block%s missing", (unsigned long long)l->missing_blocks,
             l->missing_blocks == 1 ? "" : "s");
    if (l->damaged_bytes)
        PART("%llu bytes not readable", (unsigned long long)l->damaged_bytes);
    if (l->excess_blocks)
        PART("%llu block%s of more rows than so few bytes may hold left out",
             (unsigned long long)l->excess_blocks, l->excess_blocks == 1 ? "" : "s");
    if (l->wrong_hints)
        PART("%llu hint%s contradicted by the block", (unsigned long long)l->wrong_hints,
             l->wrong_hints == 1 ? "" : "s");
    if (l->newer_blocks)
        PART("%llu block%s of a newer version left out", (unsigned long long)l->newer_blocks,
             l->newer_blocks == 1 ? "" : "s");
    if (l->repeated_blocks)
        PART("%llu block%s there twice, taken once", (unsigned long long)l->repeated_blocks,
             l->repeated_blocks == 1 ? "" : "s");
    if (l->tail_bytes && !t->in->recording)
        PART("cut off in its last block (%llu bytes)", (unsigned long long)l->tail_bytes);
#undef PART
    *line = 0;
    if (n == 0)
        return 0;
    snprintf(line, size, "%s: %s; kept the %llu records of the good blocks",
             damaged || l->newer_blocks ? "damaged"
             : l->tail_bytes            ? "truncated"
                                        : "odd",
             text, (unsigned long long)t->totals.records);
    return damaged || l->newer_blocks || (l->tail_bytes && !t->in->recording);
}
