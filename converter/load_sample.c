/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.c - the virtual table `probing_load`: the samples of the trace being converted, as rows of table `sample`. It supports a
 * single full scan, in the file's order and without constraints: rows come from samples_next() of load_state.h.
 */
#include "load_sample.h"

#include "scan.h"

enum { TS, THREAD, STACK, CPU_US, COUNT, FLAGS };

struct cursor {
    struct scan_cursor scan;
    const struct sample_batch *batch; /* NULL at the end */
    size_t i;
    sqlite3_int64 rowid;
};

static int load_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **msg) {
    (void)argc, (void)argv, (void)msg;
    return scan_connect(db, "CREATE TABLE x(ts, thread, stack, cpu_us, count, flags)", aux, out);
}

static int load_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
    return scan_open(table, sizeof(struct cursor), out);
}

/* Gets the next batch, and inserts the functions, frames and stacks that it names. Returns an SQLite result code. */
static int take_batch(struct load *l, const struct sample_batch **batch) {
    if (l->samples_next(l->samples_ctx, batch) < 0)
        return SQLITE_NOMEM;
    int rc = queue_drain(l->stacks->rows, l->db, l->trace);
    if (rc == SQLITE_OK && *batch && l->tick && l->tick(l->tick_ctx, (*batch)->part))
        rc = SQLITE_INTERRUPT;
    return rc;
}

int load_sample_pass(struct load *l) {
    const struct sample_batch *batch = NULL;
    int rc;

    do
        rc = take_batch(l, &batch);
    while (rc == SQLITE_OK && batch);
    return rc;
}

static int load_next(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;
    int rc;

    c->rowid++;
    if (c->batch && ++c->i < c->batch->n)
        return SQLITE_OK;
    c->i = 0;
    do
        rc = take_batch(c->scan.l, &c->batch);
    while (rc == SQLITE_OK && c->batch && !c->batch->n);
    return rc;
}

static int load_filter(sqlite3_vtab_cursor *base, int idx, const char *str, int argc,
                       sqlite3_value **argv) {
    struct cursor *c = (struct cursor *)base;

    (void)idx, (void)str, (void)argc, (void)argv;
    c->batch = NULL;
    c->rowid = 0;
    return load_next(base);
}

static int load_eof(sqlite3_vtab_cursor *base) {
    return !((struct cursor *)base)->batch;
}

static int load_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int col) {
    const struct cursor *c = (struct cursor *)base;
    const struct sample_row *row = &c->batch->rows[c->i];
    sqlite3_int64 v = 0;

    switch (col) {
    case TS:
        v = row->ts;
        break;
    case THREAD:
        v = row->thread;
        break;
    case STACK:
        if (row->stack == 0)
            return SQLITE_OK; /* NULL */
        v = row->stack;
        break;
    case CPU_US:
        v = (sqlite3_int64)row->cpu_us;
        break;
    case COUNT:
        v = (sqlite3_int64)row->count;
        break;
    case FLAGS:
        v = (sqlite3_int64)row->flags;
        break;
    }
    sqlite3_result_int64(ctx, v);
    return SQLITE_OK;
}

static int load_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid) {
    *rowid = ((struct cursor *)base)->rowid;
    return SQLITE_OK;
}

static sqlite3_module module = {
    SCAN_METHODS,
    .xCreate = load_connect, /* not used under that name: the table is for this connection only */
    .xConnect = load_connect,
    .xOpen = load_open,
    .xFilter = load_filter,
    .xNext = load_next,
    .xEof = load_eof,
    .xColumn = load_column,
    .xRowid = load_rowid,
};

int load_sample_register(sqlite3 *db, struct load_now *now) {
    return sqlite3_create_module_v2(db, "probing_load", &module, now, NULL);
}
