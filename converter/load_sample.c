/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.c - the virtual table `probing_load`: the samples of the trace being converted, as
 * rows of table `sample`. One full scan, in the file's order, no constraints.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "load_sample.h"

struct table {
    sqlite3_vtab base;
    struct load *l;
};

enum { TS, THREAD, STACK, CPU_US, COUNT, FLAGS };

struct cursor {
    sqlite3_vtab_cursor base;
    struct load *l;
    struct reader_data data;
    struct trace_rows rows;
    size_t block; /* the one being read + 1 */
    sqlite3_int64 rowid, row[6];
    int eof;
};

static int load_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **msg) {
    (void)argc, (void)argv, (void)msg;
    int rc = sqlite3_declare_vtab(db, "CREATE TABLE x(ts, thread, stack, cpu_us, count, flags)");
    struct table *t = rc == SQLITE_OK ? sqlite3_malloc(sizeof *t) : NULL;

    if (rc == SQLITE_OK && !t)
        rc = SQLITE_NOMEM;
    if (t) {
        memset(t, 0, sizeof *t);
        t->l = aux;
        *out = &t->base;
    }
    return rc;
}

static int load_disconnect(sqlite3_vtab *base) {
    sqlite3_free(base);
    return SQLITE_OK;
}

static int load_best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
    (void)base;
    info->estimatedCost = 1e6;
    return SQLITE_OK;
}

static int load_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
    struct cursor *c = calloc(1, sizeof *c);

    if (!c)
        return SQLITE_NOMEM;
    c->l = ((struct table *)base)->l;
    *out = &c->base;
    return SQLITE_OK;
}

static int load_close(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;

    reader_data_free(&c->data);
    free(c);
    return SQLITE_OK;
}

/* Resolves one sample into c->row and adds it up. */
static int take(struct cursor *c, const struct trace_value *v) {
    struct load *l = c->l;
    uint64_t ts = v[TRACE_sample_ts].u, stack = v[TRACE_sample_stack].u;
    uint64_t cpu_us = v[TRACE_sample_cpu_us].u, count = v[TRACE_sample_count].u;
    uint64_t flags = v[TRACE_sample_flags].u;
    struct resolver_total *t =
        resolver_stack(l->resolver, c->data.h.epoch, stack, v[TRACE_sample_pc].u, ts);
    struct thread *th = threads_at(&l->meta->threads, v[TRACE_sample_tid].u, ts);

    if (!t || !th)
        return SQLITE_NOMEM;
    if (!t->site && stack)
        l->unresolved++;
    l->samples++;
    t->samples++;
    t->count += count;
    t->running += flags & 1 ? count : 0;
    t->cpu_us += cpu_us;
    t->ns += count * meta_period_at(l->meta, ts);
    th->samples += count;
    th->running += flags & 1 ? count : 0;
    th->cpu_us += cpu_us;
    c->row[TS] = clock_utc(&l->meta->clock, ts);
    c->row[THREAD] = (sqlite3_int64)((uint64_t)l->trace << 40) + (th - l->meta->threads.t) + 1;
    c->row[STACK] = t->site;
    c->row[CPU_US] = (sqlite3_int64)cpu_us;
    c->row[COUNT] = (sqlite3_int64)count;
    c->row[FLAGS] = (sqlite3_int64)flags;
    c->rowid++;
    return SQLITE_OK;
}

static int load_next(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;
    struct reader *r = c->l->shared.reader;
    const uint64_t want = 1ull << TRACE_sample;
    struct trace_value v[TRACE_MAX_FIELDS];

    for (;;) {
        if (c->block) {
            int type = trace_rows_next(&c->rows, want, v);
            if (type > 0)
                return take(c, v);
            if (type < 0)
                reader_damaged(r, c->block - 1);
        }
        size_t n = reader_blocks(r);
        while (c->block < n && !(reader_block(r, c->block)->types & want))
            c->block++;
        if (c->block >= n) {
            c->eof = 1;
            return SQLITE_OK;
        }
        const struct reader_block *b = reader_block(r, c->block++);
        if (c->l->tick && c->l->tick(c->l->tick_ctx, (double)b->pos / (double)reader_size(r)))
            return SQLITE_INTERRUPT;
        int err = reader_load(r, c->block - 1, &c->data);
        if (err == -ENOMEM)
            return SQLITE_NOMEM;
        memset(&c->rows, 0, sizeof c->rows);
        if (!err)
            trace_rows_start(&c->rows, &c->data.h, c->data.data);
    }
}

static int load_filter(sqlite3_vtab_cursor *base, int idx, const char *str, int argc,
                       sqlite3_value **argv) {
    struct cursor *c = (struct cursor *)base;

    (void)idx, (void)str, (void)argc, (void)argv;
    c->block = 0;
    c->eof = 0;
    c->rowid = 0;
    return load_next(base);
}

static int load_eof(sqlite3_vtab_cursor *base) {
    return ((struct cursor *)base)->eof;
}

static int load_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int col) {
    const struct cursor *c = (struct cursor *)base;

    if (col != STACK || c->row[STACK]) /* no stack: NULL */
        sqlite3_result_int64(ctx, c->row[col]);
    return SQLITE_OK;
}

static int load_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid) {
    *rowid = ((struct cursor *)base)->rowid;
    return SQLITE_OK;
}

static sqlite3_module module = {
    .xCreate = load_connect, /* unused names: a table for this connection only */
    .xConnect = load_connect,
    .xBestIndex = load_best_index,
    .xDisconnect = load_disconnect,
    .xDestroy = load_disconnect,
    .xOpen = load_open,
    .xClose = load_close,
    .xFilter = load_filter,
    .xNext = load_next,
    .xEof = load_eof,
    .xColumn = load_column,
    .xRowid = load_rowid,
};

int load_sample_register(sqlite3 *db, struct load *l) {
    return sqlite3_create_module_v2(db, "probing_load", &module, l, NULL);
}
