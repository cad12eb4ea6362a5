/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - the rows of one trace into the tables of schema.sql.
 *
 *     struct load l = {.db = db, .trace = 1, .reader = r, .epochs = es, .meta = &m, ...};
 *     int rc = load_register(db, &l);       // once per database; l is filled in anew for each trace
 *     rc = load_rows(&l);                    // INSERT ... SELECT for each kind of record
 *
 * Samples come through a virtual table of their own, `probing_load`: its columns are those of table
 * `sample`, resolved already (UTC time, thread row, callsite), which is a good deal faster than SQL
 * functions over `probing_trace`. Everything else is INSERT ... SELECT from `probing_trace`, with the SQL
 * function probing_utc(monotonic ns). One thread at a time.
 */
#ifndef PROBING_CONVERTER_LOAD_H
#define PROBING_CONVERTER_LOAD_H

#include <sqlite3.h>

#include "meta.h"
#include "resolve.h"
#include "vtab.h"

struct load {
    sqlite3 *db;
    uint32_t trace;            /* its id: row ids are trace << 40 | n */
    struct vtab_shared shared; /* reader and epochs of this trace */
    struct strips strips;      /* filled while the samples are loaded */
    struct meta *meta;
    struct modules *modules;
    struct resolver *resolver;
    int (*tick)(void *ctx, double part); /* called per block; not 0: stop (SQLITE_INTERRUPT) */
    void *tick_ctx;
    uint64_t samples;    /* result: ticks of the sampler, by thread */
    uint64_t unresolved; /* result: rows whose stack is not in the trace */
};

/* Registers modules and functions that read *l. An SQLite result code, as all below. */
int load_register(sqlite3 *db, struct load *l);
int load_rows(struct load *l);
/* The database outlives what load_register() was given. */
void load_unregister(sqlite3 *db);

#endif
