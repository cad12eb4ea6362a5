/* SPDX-License-Identifier: Apache-2.0 */
#include "convert.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../traces/run.h"
#include "load.h"
#include "store.h"
#include "text.h"

struct job {
    const struct convert_options *opt;
    struct convert_result *res;
    struct store store;
    struct symbols *symbols;
    struct callsites sites;
    struct load load;
    double done, share; /* of all input: finished files, this file */
    unsigned part;      /* which trace of its file */
};

static __attribute__((format(printf, 3, 4))) void say(const struct job *j, const char *file,
                                                      const char *fmt, ...) {
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (j->opt->say)
        j->opt->say(j->opt->ctx, file, line);
}

static int tick(void *ctx, double part) {
    struct job *j = ctx;

    return j->opt->tick ? j->opt->tick(j->opt->ctx, j->done + part * j->share) : 0;
}

/* Table lost. *total: records that are known to be missing. */
static int write_loss(struct job *j, const struct reader_totals *s, const struct reader_loss *loss,
                      uint64_t *total) {
    const struct {
        const char *reason;
        uint64_t count;
    } found[] = {
        {"damaged_block_records", loss->damaged_records}, /* the only ones that count records */
        {"unresolved_stack", j->load.unresolved},         {"damaged_blocks", loss->damaged_blocks},
        {"damaged_bytes", loss->damaged_bytes},           {"missing_blocks", loss->missing_blocks},
        {"repeated_blocks", loss->repeated_blocks},       {"newer_blocks", loss->newer_blocks},
        {"excess_blocks", loss->excess_blocks},           {"wrong_hints", loss->wrong_hints},
        {"unknown_blocks", loss->unknown_blocks},         {"cut_off_bytes", loss->tail_bytes},
    };
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(j->store.db, "INSERT INTO lost VALUES(?,?,?)", -1, &st, NULL);

    *total = loss->damaged_records;
    for (size_t i = 0; rc == SQLITE_OK && i < TRACE_NLOST + sizeof found / sizeof *found; i++) {
        const char *reason =
            i < TRACE_NLOST ? trace_lost_name((unsigned)i) : found[i - TRACE_NLOST].reason;
        uint64_t count = i < TRACE_NLOST ? s->lost[i] : found[i - TRACE_NLOST].count;
        if (count == 0)
            continue;
        if (i < TRACE_NLOST)
            *total += count;
        sqlite3_bind_int64(st, 1, j->load.trace);
        sqlite3_bind_text(st, 2, reason, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, (sqlite3_int64)count);
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(j->store.db);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    /* Of forked children that left no trace (load.c). */
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(j->store.db,
                                "SELECT sum(count) FROM lost WHERE trace = ? AND reason = 'child'",
                                -1, &st, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, j->load.trace);
        *total += sqlite3_step(st) == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
        rc = sqlite3_finalize(st);
    }
    return rc;
}

static void bind_text(sqlite3_stmt *st, int i, const char *text) {
    if (text && *text)
        sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
}

static void bind_known(sqlite3_stmt *st, int i, int known, int64_t v) {
    if (known)
        sqlite3_bind_int64(st, i, v);
}

/* The last time that the process itself recorded: where another one has finished its trace, `end` and its time are that one's. */
static uint64_t last_recorded(const struct meta *m, const struct reader *r, uint64_t last_ts) {
    uint64_t last = 0;

    if (m->end_last)
        return m->end_last < last_ts ? m->end_last : last_ts;
    if (!m->end_reason || strcmp(m->end_reason, "killed") != 0)
        return last_ts;
    for (size_t i = 0; i < reader_blocks(r); i++) { /* of a version that did not write end.last */
        const struct reader_block *b = reader_block(r, i);
        if (b->last_ts != m->end_ts && b->last_ts > last && b->last_ts <= last_ts)
            last = b->last_ts;
    }
    return last ? last : last_ts;
}

/* The row of trace_file, last of a trace. */
static int write_trace(struct job *j, const struct input *in, const struct reader_totals *s,
                       int complete, uint64_t lost) {
    static const char sql[] =
        "INSERT INTO trace_file VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,"
        "?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28,?29,?30,?31,?32,?33,?34,?35,?36,?37,?38)";
    struct meta *m = j->load.meta;
    struct reader *r = j->load.shared.reader;
    sqlite3_int64 base = (sqlite3_int64)((uint64_t)j->load.trace << 40);
    char python[32];
    char *name = text_utf8(in->path, strlen(in->path), NULL), *numbered;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(j->store.db, sql, -1, &st, NULL);

    if (name && j->part > 1) {
        int n = asprintf(&numbered, "%s#%u", name, j->part);
        free(name);
        name = n < 0 ? NULL : numbered;
    }
    if (rc != SQLITE_OK || !name) {
        sqlite3_finalize(st);
        free(name);
        return name ? rc : SQLITE_NOMEM;
    }
    text_python(m->python, python);
    sqlite3_bind_int64(st, 1, j->load.trace);
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
    uint64_t last = last_recorded(m, r, s->last_ts);
    bind_known(st, 19, s->last_ts != 0, clock_utc(&m->clock, last));
    bind_text(st, 20, m->end_reason);
    sqlite3_bind_int(st, 21, complete);
    sqlite3_bind_int64(st, 22, (sqlite3_int64)reader_size(r));
    sqlite3_bind_int64(st, 23, (sqlite3_int64)reader_blocks(r));
    sqlite3_bind_int64(st, 24, (sqlite3_int64)s->records);
    sqlite3_bind_int64(st, 25, (sqlite3_int64)lost);
    bind_text(st, 26, m->clock.n ? "anchors" : "none");
    sqlite3_bind_int64(st, 27, (sqlite3_int64)m->clock.n);
    bind_known(st, 28, m->clock.n > 0, (int64_t)m->clock.uncertainty);
    bind_known(st, 29, m->nperiods > 0, (int64_t)meta_period_at(m, UINT64_MAX));
    sqlite3_bind_int64(st, 30, base);
    sqlite3_bind_int64(st, 31, base | 0xffffffffff);
    bind_text(st, 32, m->role);
    bind_text(st, 33, m->master);
    bind_known(st, 34, m->end_reason && last != m->end_ts, clock_utc(&m->clock, m->end_ts));
    bind_known(st, 35, m->end_signal != 0, (int64_t)m->end_signal);
    sqlite3_bind_int64(st, 36, (sqlite3_int64)m->nperiods);
    bind_text(st, 37, m->run);
    bind_text(st, 38, m->job);
    rc = sqlite3_step(st);
    int rc2 = sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc2;
}

/* Says what is wrong with a trace, in one line. 1 if anything is. */
static int report(struct job *j, const struct input *in, const struct reader_loss *l,
                  const struct reader_totals *s) {
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
    if (l->tail_bytes && !in->recording)
        PART("cut off in its last block (%llu bytes)", (unsigned long long)l->tail_bytes);
#undef PART
    if (n == 0)
        return 0;
    say(j, in->path, "%s: %s; kept the %llu records of the good blocks",
        damaged || l->newer_blocks ? "damaged"
        : l->tail_bytes            ? "truncated"
                                   : "odd",
        text, (unsigned long long)s->records);
    return damaged || l->newer_blocks || (l->tail_bytes && !in->recording);
}

/* Converts an opened trace. An SQLite result code. */
static int convert_trace(struct job *j, const struct input *in, struct reader *r) {
    struct load *l = &j->load;
    struct reader_loss loss;
    struct modules mods = {0};
    struct meta meta = {0};
    struct reader_totals sums;
    uint64_t lost = 0;
    int rc = SQLITE_NOMEM;

    if (reader_check(r) != 0)
        return rc;
    l->shared.reader = r;
    l->shared.epochs = epochs_new(r);
    l->meta = &meta;
    l->modules = &mods;
    l->shared.strips = &l->strips;
    l->resolver = NULL;
    l->samples = l->unresolved = 0;
    if (!l->shared.epochs || meta_load(&meta, r, l->shared.epochs) != 0 ||
        modules_load(&mods, r, l->shared.epochs, j->symbols) != 0)
        goto out;
    struct resolver_options ro = {
        meta.eval_start, meta.eval_end, meta.cold_start, meta.cold_end, r, &meta};
    l->resolver = resolver_new(l->shared.epochs, &mods, &j->sites, &ro);
    if (!l->resolver)
        goto out;
    rc = load_rows(l);
    if (rc == SQLITE_OK && reader_loss(r, &loss) != 0)
        rc = SQLITE_NOMEM;
    reader_totals(r, &sums);
    if (rc == SQLITE_OK)
        rc = write_loss(j, &sums, &loss, &lost);
    if (rc != SQLITE_OK)
        goto out;
    int damaged = report(j, in, &loss, &sums);
    rc = write_trace(j, in, &sums, !damaged && meta.end_reason, lost);
    j->res->traces++;
    j->res->damaged += damaged != 0;
    j->res->open += !meta.end_reason;
    j->res->records += sums.records;
    j->res->samples += l->samples;
    j->res->lost += lost;
    j->res->bytes_in += reader_size(r);
out:
    strips_free(&l->strips);
    resolver_free(l->resolver);
    modules_free(&mods);
    meta_free(&meta);
    epochs_free(l->shared.epochs);
    return rc;
}

struct recording {
    char name[RUN_ID];
    uint64_t size;
    int left_out;
};

/* Copies of one trace, and earlier states of it, count once: the longest does. NULL when there is no memory. */
static struct recording *leave_out_copies(struct job *j, const struct inputs *in) {
    struct recording *seen = calloc(in->n ? in->n : 1, sizeof *seen);

    for (size_t i = 0; seen && i < in->n; i++) {
        struct recording *a = &seen[i];
        if (strcmp(in->file[i].path, "-") == 0 ||
            run_recording(in->file[i].path, a->name, &a->size) != 0)
            continue;
        for (size_t k = 0; k < i && !a->left_out; k++) {
            struct recording *b = &seen[k];
            if (b->left_out || strcmp(a->name, b->name) != 0)
                continue;
            size_t out = a->size > b->size ? k : i;
            seen[out].left_out = 1;
            say(j, in->file[out].path, "the same recording as %s: counted once",
                in->file[out == i ? k : i].path);
        }
    }
    return seen;
}

static int convert_all(struct job *j, const struct inputs *in) {
    struct recording *seen = leave_out_copies(j, in);
    int err = seen ? 0 : -ENOMEM;

    for (size_t i = 0; !err && i < in->n; i++) {
        struct reader *r;
        if (seen[i].left_out)
            continue;
        int open_err = reader_open(&r, in->file[i].path);
        if (open_err) {
            say(j, in->file[i].path, "%s", reader_strerror(open_err));
            j->res->failed++;
            continue;
        }
        j->done = (double)i / (double)in->n;
        j->part = 0;
        int more = 1;
        for (; !err && more > 0; more = err ? 0 : reader_next(r)) {
            j->load.trace++;
            j->part++;
            err = store_failed(&j->store, convert_trace(j, &in->file[i], r), "writing the rows");
        }
        if (!err && more < 0)
            err = store_failed(&j->store, SQLITE_NOMEM, "reading");
        reader_close(r);
    }
    free(seen);
    if (!err && j->res->traces == 0) {
        snprintf(j->store.error, sizeof j->store.error, "%s%sno input could be used",
                 j->opt->out ? j->opt->out : "", j->opt->out ? ": not written: " : "");
        err = -ENODATA;
    }
    return err;
}

int convert(const struct inputs *in, const struct convert_options *opt,
            struct convert_result *res) {
    struct job j = {.opt = opt, .res = res};
    struct stat st;

    memset(res, 0, sizeof *res);
    int err = store_open(&j.store, opt->out, opt->force, in);
    if (err)
        goto out;
    callsites_init(&j.sites);
    j.share = in->n ? 1.0 / (double)in->n : 1;
    j.load.db = j.store.db;
    j.load.tick = tick;
    j.load.tick_ctx = &j;
    j.symbols = symbols_new(opt->debuginfod);
    int rc = j.symbols ? load_register(j.store.db, &j.load) : SQLITE_NOMEM;
    err = store_failed(&j.store, rc, "starting");
    if (!err)
        err = convert_all(&j, in);
    if (!err)
        err = store_failed(&j.store, callsites_write(&j.sites, j.store.db), "writing the stacks");
    if (!err && !opt->out)
        load_unregister(j.store.db);
    if (err)
        store_abort(&j.store);
    else
        err = store_finish(&j.store, &res->db);
    res->runs = j.store.runs;
    if (!err && opt->out && stat(opt->out, &st) == 0)
        res->bytes_out = (uint64_t)st.st_size;
    callsites_free(&j.sites);
    symbols_free(j.symbols);
out:
    if (err)
        snprintf(res->error, sizeof res->error, "%s", j.store.error);
    return err;
}
