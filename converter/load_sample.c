/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.c - the virtual table `probing_load`: the samples of the trace being converted, as
 * rows of table `sample`. One full scan, in the file's order, no constraints, once: they come from load_state.h's samples_next.
 */
#include <stdlib.h>
#include <string.h>

#include "load_sample.h"

struct table {
    sqlite3_vtab base;
    const struct load_now *now;
};

enum { TS, THREAD, STACK, CPU_US, COUNT, FLAGS };

struct cursor {
    sqlite3_vtab_cursor base;
    struct load *l;
    const struct sample_batch *batch; /* NULL at the end */
    size_t i;
    sqlite3_int64 rowid;
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
        t->now = aux;
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
    c->l = ((struct table *)base)->now->load;
    *out = &c->base;
    return SQLITE_OK;
}

static int load_close(sqlite3_vtab_cursor *base) {
    free(base);
    return SQLITE_OK;
}

static int load_next(sqlite3_vtab_cursor *base) {
    struct cursor *c = (struct cursor *)base;

    c->rowid++;
    if (c->batch && ++c->i < c->batch->n)
        return SQLITE_OK;
    c->i = 0;
    do {
        if (c->l->samples_next(c->l->samples_ctx, &c->batch) < 0)
            return SQLITE_NOMEM;
        int rc = queue_drain(c->l->stacks->rows, c->l->db, c->l->trace);
        if (rc != SQLITE_OK)
            return rc;
        if (c->batch && c->l->tick && c->l->tick(c->l->tick_ctx, c->batch->part))
            return SQLITE_INTERRUPT;
    } while (c->batch && !c->batch->n);
    return SQLITE_OK;
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

int load_sample_register(sqlite3 *db, struct load_now *now) {
    return sqlite3_create_module_v2(db, "probing_load", &module, now, NULL);
}
