/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "load_sample.h"
#include "load_torch.h"
#include "text.h"
#include "torch_pipe.h"
#include "torch_tables.h"

/* SQL: the number or text that was recorded; the text of an integer has its digits where a double has not. SQLite cannot store a NaN, so that becomes a text too. */
#define VALUE                                                                                         \
    "CASE kind WHEN 0 THEN NULL"                                                                      \
    " WHEN 1 THEN CAST(iif(abs(number) >= 9007199254740992 AND text <> '', text, number) AS INTEGER)" \
    " WHEN 2 THEN coalesce(number, 'nan') ELSE text END"

/* SQL: value of torch_cuda.thread (schema/36_torch.sql); for steps it stands for the trace. */
#define THREAD "CASE stage WHEN 5 THEN :base ELSE probing_thread(tid, ts) END"

/* SQL: that a number from a record can be part of a row id. With any other one, the row would lie among those of another trace. */
#define IN_TRACE " BETWEEN 0 AND 0xffffffffff"
/* SQL: id of the row with that number; NULL for 0, and for a number that is none. */
#define ROW_OF(number)                                                                             \
    "CASE WHEN " number " <> 0 AND " number IN_TRACE " THEN :base + " number " END"

/* The kinds of records that go into a table as they are; :base is added to make row ids. */
#define RECORD "temp.record" /* becomes temp.record_KIND */
static const struct {
    const char *record, *insert;
} inserts[] = {
    {"process",
     "INSERT INTO process_info SELECT :base + rowid, probing_utc(ts), probing_utc(start_ts), host,"
     " boot_id, pid, ppid, uid, nullif(rank, -1), nullif(local_rank, -1), nullif(world_size, -1),"
     " exe, probing_command(cmdline), cwd, probing_python(python), agent, how,"
     " nullif(role, ''), nullif(master, '') FROM temp.record"},
    {"config", "INSERT INTO setting SELECT :base + rowid, probing_utc(ts), key, value"
               " FROM temp.record"},
    {"note", "INSERT INTO note SELECT :base + rowid, probing_utc(ts), level, part, text"
             " FROM temp.record"},
    {"clock", "INSERT INTO clock SELECT :base + rowid, ts, realtime, boottime, bracket"
              " FROM temp.record"},
    {"fact",
     "INSERT INTO fact SELECT :base + rowid, probing_utc(ts), kind, key, value FROM temp.record"},
    {"memory",
     "INSERT INTO memory_sample SELECT :base + rowid, probing_utc(ts), rss, vms, shared, data,"
     " swap, peak FROM temp.record"},
    {"children",
     "INSERT INTO child SELECT :base + rowid, probing_utc(ts), ended, failed, gone, ticks,"
     " lived FROM temp.record"},
    {"children",
     "INSERT INTO lost SELECT :base >> 40, 'child', sum(ticks) FROM child"
     " WHERE id BETWEEN :base AND :base | 0xffffffffff GROUP BY NULL HAVING sum(ticks) > 0"},
    {"cpu", "INSERT INTO cpu SELECT :base + rowid, probing_utc(ts), user_us, system_us, threads,"
            " voluntary, involuntary, minor_faults, major_faults, agent_us, handler_us"
            " FROM temp.record"},
    {"io", "INSERT INTO io SELECT :base + rowid, probing_utc(ts), rchar, wchar, syscr, syscw,"
           " read_bytes, write_bytes FROM temp.record"},
    {"network", "INSERT INTO network SELECT :base + rowid, probing_utc(ts), interface, rx_bytes,"
                " tx_bytes, rx_packets, tx_packets, rx_errors, tx_errors FROM temp.record"},
    {"span", "INSERT OR IGNORE INTO span SELECT :base + id, probing_utc(ts),"
             " " ROW_OF("parent") ", tid, name FROM temp.record WHERE id" IN_TRACE},
    {"span_end", "INSERT OR IGNORE INTO span_end SELECT :base + id, probing_utc(ts), flags"
                 " FROM temp.record WHERE id" IN_TRACE},
    {"event", "INSERT OR IGNORE INTO event SELECT :base + id, probing_utc(ts),"
              " " ROW_OF("span") ", step, tid, name FROM temp.record WHERE id" IN_TRACE},
    {"event_value", "INSERT INTO event_value SELECT :base + rowid, :base + event, key, " VALUE
                    " FROM temp.record WHERE event" IN_TRACE},
    {"variable", "INSERT INTO variable SELECT :base + rowid, probing_utc(ts), step, at, func, name,"
                 " " VALUE " FROM temp.record"},
    {"memory_step", "INSERT INTO memory_step SELECT :base + rowid, probing_utc(ts), step, rss, vms,"
                    " nullif(gpu_allocated, -1), nullif(gpu_reserved, -1) FROM temp.record"},
    {"gpu",
     "INSERT INTO gpu SELECT :base + rowid, probing_utc(ts), device, uuid, name, nullif(util, -1),"
     " nullif(memory_util, -1), nullif(memory_used, -1), nullif(memory_total, -1),"
     " nullif(process_memory, -1), nullif(power_mw, -1), nullif(temperature, -1),"
     " nullif(sm_clock, -1) FROM temp.record"},
    {"torch_cuda",
     "INSERT OR IGNORE INTO torch_cuda SELECT " THREAD ", call, stage, probing_utc(ts), device,"
     " duration FROM temp.record"},
    {"torch_memory",
     "INSERT OR IGNORE INTO torch_memory SELECT " THREAD ", call, stage, probing_utc(ts), device,"
     " allocated, max_allocated, reserved FROM temp.record"},
    /* when a record is repeated it says more: the last record, or the complete one, is used */
    {"process_group",
     "INSERT OR IGNORE INTO rank_list(ranks) SELECT ranks FROM temp.record WHERE ranks IS NOT NULL"},
    {"process_group",
     "INSERT OR REPLACE INTO process_group SELECT :base >> 40, pg, nullif(name, ''), backend,"
     " nullif(rank, -1), nullif(size, -1), (SELECT k.id FROM rank_list k WHERE k.ranks = r.ranks),"
     " nullif(desc, '') FROM temp.record r ORDER BY rowid"},
    {"process_group",
     "INSERT INTO group_rank SELECT k.id, j.key, j.value FROM rank_list k, json_each(k.ranks) j"
     " WHERE k.id > (SELECT coalesce(max(list), 0) FROM group_rank)"},
    {"comm",
     "INSERT INTO comm SELECT :base + number, probing_utc(ts), tid, pg, seq, op, bytes,"
     " nullif(dtype, ''), duration, host, nullif(src, -1), nullif(dst, -1), flags"
     " FROM (SELECT *, min(flags & 1) FROM temp.record GROUP BY number)"
     " WHERE number" IN_TRACE
     " ON CONFLICT DO UPDATE SET ts = excluded.ts, tid = excluded.tid, pg = excluded.pg, seq = excluded.seq,"
     " op = excluded.op, bytes = excluded.bytes, dtype = excluded.dtype, duration = excluded.duration, host = excluded.host,"
     " src = excluded.src, dst = excluded.dst, flags = excluded.flags WHERE excluded.flags & 1 < comm.flags & 1"},
    {"trigger",
     "INSERT OR REPLACE INTO trigger_event SELECT :base + id, probing_utc(ts), kind,"
     " nullif(tid, 0), nullif(step, -1), CASE tick WHEN 0 THEN NULL ELSE probing_utc(tick) END,"
     " detail, nullif(text, '') FROM temp.record WHERE id" IN_TRACE " ORDER BY rowid"},
};

static sqlite3_int64 base(const struct load *l) {
    return (sqlite3_int64)((uint64_t)l->trace << 40);
}

static void fn_utc(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct load *l = ((struct load_now *)sqlite3_user_data(ctx))->load;

    (void)argc;
    sqlite3_result_int64(ctx, clock_utc(&l->meta->clock, (uint64_t)sqlite3_value_int64(argv[0])));
}

/* Arguments (tid, ts): returns the id of the row in table thread. */
static void fn_thread(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    struct load *l = ((struct load_now *)sqlite3_user_data(ctx))->load;
    struct threads *all = &l->meta->threads;
    const struct thread *t = threads_at(all, (uint64_t)sqlite3_value_int64(argv[0]),
                                        (uint64_t)sqlite3_value_int64(argv[1]));

    (void)argc;
    if (t)
        sqlite3_result_int64(ctx, base(l) + (t - all->t) + 1);
    else
        sqlite3_result_error_nomem(ctx);
}

/* The virtual table gives NUL bytes as U+FFFD, so they are converted back here. */
static void fn_command(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    const unsigned char *p = sqlite3_value_text(argv[0]);
    size_t n = (size_t)sqlite3_value_bytes(argv[0]), k = 0;
    char *args = malloc(n + 1);

    (void)argc;
    for (size_t i = 0; args && i < n;) {
        if (n - i >= 3 && p[i] == 0xef && p[i + 1] == 0xbf && p[i + 2] == 0xbd) {
            args[k++] = 0;
            i += 3;
        } else {
            args[k++] = (char)p[i++];
        }
    }
    char *text = args ? text_command(args, k) : NULL;
    free(args);
    if (text)
        sqlite3_result_text(ctx, text, -1, free);
    else
        sqlite3_result_error_nomem(ctx);
}

static void fn_python(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    char text[32];

    (void)argc;
    text_python((uint64_t)sqlite3_value_int64(argv[0]), text);
    if (*text)
        sqlite3_result_text(ctx, text, -1, SQLITE_TRANSIENT);
}

static const struct {
    const char *name;
    int nargs;
    void (*fn)(sqlite3_context *, int, sqlite3_value **);
} functions[] = {{"probing_utc", 1, fn_utc},
                 {"probing_thread", 2, fn_thread},
                 {"probing_command", 1, fn_command},
                 {"probing_python", 1, fn_python}};

int load_register(sqlite3 *db, struct load_now *now) {
    int rc = vtab_register(db, &now->shared);

    if (rc == SQLITE_OK)
        rc = load_sample_register(db, now);
    if (rc == SQLITE_OK)
        rc = torch_pipe_register(db, now);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof functions / sizeof *functions; i++)
        rc = sqlite3_create_function_v2(db, functions[i].name, functions[i].nargs,
                                        SQLITE_UTF8 | SQLITE_DIRECTONLY, now, functions[i].fn, NULL,
                                        NULL, NULL);
    return rc;
}

void load_end(struct load_now *now) {
    for (size_t i = 0; i < LOAD_STATEMENTS; i++)
        sqlite3_finalize(now->kept[i]);
    memset(now->kept, 0, sizeof now->kept);
}

void load_unregister(sqlite3 *db) {
    /* most questions make none or few of them */
    static const char made[] =
        "SELECT group_concat('DROP TABLE temp.' || name, ';') FROM temp.sqlite_master"
        " WHERE name GLOB 'record[s_]*'";
    sqlite3_stmt *st = NULL;

    if (sqlite3_prepare_v2(db, made, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_TEXT) {
        char *sql = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
        sqlite3_finalize(st);
        st = NULL;
        if (sql)
            sqlite3_exec(db, sql, NULL, NULL, NULL);
        sqlite3_free(sql);
    }
    sqlite3_finalize(st);
    sqlite3_create_module_v2(db, "probing_trace", NULL, NULL, NULL);
    sqlite3_create_module_v2(db, "probing_load", NULL, NULL, NULL);
    sqlite3_create_module_v2(db, "probing_calls", NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        sqlite3_create_function_v2(db, functions[i].name, functions[i].nargs, SQLITE_UTF8, NULL,
                                   NULL, NULL, NULL, NULL);
}

/* For a table whose ids are base + 1, base + 2, ...: sets *out to the number of this trace's last row so far, 0 when there are none. */
static int last_row(struct load *l, const char *table, sqlite3_int64 *out) {
    char *sql =
        sqlite3_mprintf("SELECT coalesce(max(id), %lld) - %lld FROM \"%w\" WHERE id BETWEEN %lld"
                        " AND %lld",
                        base(l), base(l), table, base(l), base(l) | 0xffffffffff);
    sqlite3_stmt *st = NULL;
    int rc = sql ? sqlite3_prepare_v2(l->db, sql, -1, &st, NULL) : SQLITE_NOMEM;

    *out = 0;
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    sqlite3_free(sql);
    return rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
}

/* When a trace is continued, makes rows number on after those that exist. */
static int count_before(struct load *l, const char *insert) {
    char table[32];

    l->shared.rows_before = 0;
    if (!l->shared.first || !strstr(insert, ":base + rowid") ||
        sscanf(insert, "INSERT INTO %31s", table) != 1)
        return SQLITE_OK;
    return last_row(l, table, &l->shared.rows_before);
}

/* Returns a prepared statement, which is kept for the next trace: planning it takes as long as running it for a trace of a minute. */
static int statement(struct load_now *now, sqlite3 *db, const char *sql, sqlite3_stmt **out,
                     int *is_kept) {
    size_t i = 0;
    int rc = SQLITE_OK;

    while (i < LOAD_STATEMENTS && now->kept[i] && strcmp(sqlite3_sql(now->kept[i]), sql) != 0)
        i++;
    *is_kept = i < LOAD_STATEMENTS;
    *out = *is_kept ? now->kept[i] : NULL;
    if (!*out)
        rc = sqlite3_prepare_v3(db, sql, -1, *is_kept ? SQLITE_PREPARE_PERSISTENT : 0, out, NULL);
    if (*is_kept)
        now->kept[i] = *out;
    return rc;
}

/* from: the number of the row before the first, for statements that make ids from it. */
static int run_bound(struct load_now *now, const char *sql, sqlite3_int64 from) {
    struct load *l = now->load;
    sqlite3_stmt *st;
    int is_kept, at, rc = statement(now, l->db, sql, &st, &is_kept);

    if (rc != SQLITE_OK)
        return rc;
    if ((at = sqlite3_bind_parameter_index(st, ":base")))
        sqlite3_bind_int64(st, at, base(l));
    if ((at = sqlite3_bind_parameter_index(st, ":from")))
        sqlite3_bind_int64(st, at, from);
    rc = sqlite3_step(st);
    int rc2 = is_kept ? sqlite3_reset(st) : sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc2 != SQLITE_OK ? rc2 : rc;
}

/*
 * Inserts the records. One virtual table for each kind of record serves all traces of a conversion, because SQLite remembers each virtual
 * table that was ever made in a transaction, and goes through all of them at every statement.
 */
static int load_records(struct load_now *now) {
    struct load *l = now->load;
    const struct reader *r = l->shared.reader;
    uint64_t there = 0;
    int rc = SQLITE_OK;

    for (size_t i = l->shared.first; i < reader_blocks(r); i++)
        there |= reader_block(r, i)->types; /* all blocks were read, so no hint is trusted */

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof inserts / sizeof *inserts; i++) {
        const struct trace_record *rec = trace_record_by_name(inserts[i].record);
        if (l->shared.types && rec && rec->kind == TRACE_KIND_DATA &&
            !((l->shared.types | READER_ALWAYS) >> rec->id & 1))
            continue;
        if (l->shared.types & VTAB_PLACES && !(rec && rec->id == TRACE_fact) &&
            (!rec || rec->id != TRACE_process_group || (l->meta->job && *l->meta->job)))
            continue;
        if (rec && (!(there >> rec->id & 1) ||
                    (rec->id == TRACE_process_group && l->shared.types & VTAB_NO_GROUPS)))
            continue;
        const char *insert = inserts[i].insert, *from = strstr(insert, RECORD);
        char *table = sqlite3_mprintf("CREATE VIRTUAL TABLE IF NOT EXISTS " RECORD
                                      "_%s USING probing_trace('', '%q')",
                                      inserts[i].record, inserts[i].record);
        const char *only = l->shared.types & VTAB_PLACES && rec && rec->id == TRACE_fact
                               ? " WHERE kind = 'env' AND key GLOB '*_RESTART_COUNT'"
                               : "";
        char *sql = from
                        ? sqlite3_mprintf("%.*s_%s%s%s", (int)(from - insert + sizeof RECORD - 1),
                                          insert, inserts[i].record, from + sizeof RECORD - 1, only)
                        : sqlite3_mprintf("%s", insert);
        rc = table && sql ? sqlite3_exec(l->db, table, NULL, NULL, NULL) : SQLITE_NOMEM;
        if (rc == SQLITE_OK)
            rc = count_before(l, insert);
        if (rc == SQLITE_OK)
            rc = run_bound(now, sql, 0);
        sqlite3_free(table);
        sqlite3_free(sql);
    }
    return rc;
}

/*
 * Inserts the rows of samples. When this trace's ids are the highest, a row before the first one is inserted and deleted again, only to set
 * where the ids begin: rows inserted without an id then get the next one, which costs SQLite less than looking up each id.
 */
static int load_sample_rows(struct load_now *now) {
#define SAMPLE "ts, thread, stack, cpu_us, count, flags"
    static const char in_order[] =
        "INSERT INTO sample(" SAMPLE ") SELECT " SAMPLE " FROM " RECORD "s",
                      by_number[] = "INSERT INTO sample(id, " SAMPLE
                                    ") SELECT :from + rowid, " SAMPLE " FROM " RECORD "s";
    struct load *l = now->load;
    sqlite3_int64 had = 0, all = 0;
    int rc =
        sqlite3_exec(l->db, "CREATE VIRTUAL TABLE IF NOT EXISTS " RECORD "s USING probing_load",
                     NULL, NULL, NULL);

    if (rc == SQLITE_OK)
        rc = last_row(l, "sample", &had);
    if (rc == SQLITE_OK)
        rc = sql_number(l->db, "SELECT max(id) FROM sample", &all);
    if (rc != SQLITE_OK)
        return rc;
    int last = all <= (base(l) | 0xffffffffff);
    if (last && !had)
        rc = run_bound(now, "INSERT INTO sample VALUES(:base, 0, 0, NULL, 0, 0, 0)", 0);
    if (rc == SQLITE_OK)
        rc = run_bound(now, last ? in_order : by_number, base(l) + had);
    if (rc == SQLITE_OK && last && !had)
        rc = run_bound(now, "DELETE FROM sample WHERE id = :base", 0);
    return rc;
#undef SAMPLE
}

static int load_samples(struct load_now *now) {
    return now->load->no_rows ? load_sample_pass(now->load) : load_sample_rows(now);
}

/* Inserts the rest of the functions, frames and stacks of the samples, and the sums by stack and by function. */
static int load_totals(struct load *l) {
    return queue_drain(l->stacks->rows, l->db, l->trace);
}

static void bind_time(struct load *l, sqlite3_stmt *st, int i, uint64_t ts) {
    if (ts == 0 || ts == UINT64_MAX)
        sqlite3_bind_null(st, i);
    else
        sqlite3_bind_int64(st, i, clock_utc(&l->meta->clock, ts));
}

static int load_threads(struct load *l) {
    const struct threads *all = &l->meta->threads;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        l->db,
        "INSERT INTO thread VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11) ON CONFLICT DO UPDATE SET name = ?4, ident = ?5, start_ts = ?6,"
        " end_ts = ?7, samples = samples + ?8, running = running + ?9, cpu_us = cpu_us + ?10, comm = ?11",
        -1, &st, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < all->n; i++) {
        const struct thread *t = &all->t[i];
        sqlite3_bind_int64(st, 1, base(l) + (sqlite3_int64)i + 1);
        sqlite3_bind_int64(st, 2, l->trace);
        sqlite3_bind_int64(st, 3, (sqlite3_int64)t->tid);
        sqlite3_bind_text(st, 4, threads_text(all, t->name), -1, SQLITE_STATIC);
        if (t->ident)
            sqlite3_bind_int64(st, 5, (sqlite3_int64)t->ident);
        else
            sqlite3_bind_null(st, 5);
        bind_time(l, st, 6, t->start);
        bind_time(l, st, 7, t->end);
        sqlite3_bind_int64(st, 8, (sqlite3_int64)t->samples);
        sqlite3_bind_int64(st, 9, (sqlite3_int64)t->running);
        sqlite3_bind_int64(st, 10, (sqlite3_int64)t->cpu_us);
        sqlite3_bind_text(st, 11, threads_text(all, t->comm), -1, SQLITE_STATIC);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Takes over what was known of the files' symbols when the trace was read before, since addresses named then are not looked up again. */
static int keep_symbols(struct load *l) {
    struct modules *mods = l->modules;
    char *sql =
        sqlite3_mprintf("SELECT start, path, symbols FROM module WHERE id BETWEEN %lld AND %lld"
                        " AND symbols IS NOT NULL",
                        base(l), base(l) | 0xffffffffff);
    sqlite3_stmt *st = NULL;
    int rc = sql ? sqlite3_prepare_v2(l->db, sql, -1, &st, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        for (size_t i = 0; i < mods->n; i++)
            if (mods->m[i].start == (uint64_t)sqlite3_column_int64(st, 0) &&
                strcmp(mods->m[i].path, (const char *)sqlite3_column_text(st, 1)) == 0)
                mods->m[i].had = 1 + sqlite3_column_int(st, 2);
    return rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
}

static int load_modules(struct load *l) {
    sqlite3_stmt *st;

    if (!l->modules)
        return SQLITE_OK;
    int rc = l->shared.first ? keep_symbols(l) : SQLITE_OK;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(l->db, "INSERT OR REPLACE INTO module VALUES(?,?,?,?,?,?,?,?,?)",
                                -1, &st, NULL);
    if (rc != SQLITE_OK)
        return rc;

    for (size_t i = 0; rc == SQLITE_OK && i < l->modules->n; i++) {
        const struct module *m = &l->modules->m[i];
        /* the file may have been opened for another trace, so this only depends on the addresses of this one */
        int known = !m->asked ? m->had - 1 : m->recorded ? 1 : symbols_file_state(m->file);
        sqlite3_bind_int64(st, 1, base(l) + (sqlite3_int64)i + 1);
        bind_time(l, st, 2, m->load);
        bind_time(l, st, 3, m->unload);
        sqlite3_bind_text(st, 4, m->path, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 5, m->build_id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 6, (sqlite3_int64)m->start);
        sqlite3_bind_int64(st, 7, (sqlite3_int64)m->end);
        sqlite3_bind_int64(st, 8, (sqlite3_int64)m->bias);
        if (known >= 0)
            sqlite3_bind_int(st, 9, known);
        else
            sqlite3_bind_null(st, 9);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

static int load_periods(struct load *l) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(l->db, "INSERT INTO period VALUES(?,?,?)", -1, &st, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < l->meta->nperiods; i++) {
        const struct meta_period *p = &l->meta->periods[i];
        sqlite3_bind_int64(st, 1, l->trace);
        /* the first period also holds for the time before it */
        sqlite3_bind_int64(st, 2, i ? clock_utc(&l->meta->clock, p->since) : INT64_MIN);
        sqlite3_bind_int64(st, 3, (sqlite3_int64)p->ns);
        rc = sql_done(st);
    }
    sqlite3_finalize(st);
    return rc;
}

static int load_calls(struct load *l) {
    const uint64_t types = l->shared.types;

    if (!types || types & (1ull << TRACE_torch_calls | VTAB_STEPS))
        return load_torch(l);
    return types & VTAB_NUMBERS ? torch_tables_number(l) : SQLITE_OK;
}

int load_rows(struct load_now *now, struct load *l) {
    int (*const parts[])(struct load *) = {load_totals, load_calls, load_threads, load_modules,
                                           load_periods};
    int rc = SQLITE_OK;

    now->load = l;
    now->shared = &l->shared;
    rc = load_samples(now);
    if (rc == SQLITE_OK)
        rc = load_records(now);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof parts / sizeof *parts; i++)
        if (!i || !(l->shared.types & VTAB_PLACES))
            rc = parts[i](l);
    return rc;
}
