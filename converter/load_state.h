/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_state.h - what the parts of a conversion share about the trace that is being loaded. prepare.h fills it in; load.h calls the other
 * parts (load_sample.h, sample_rows.h, load_torch.h), which depend on this header only.
 */
#ifndef PROBING_CONVERTER_LOAD_STATE_H
#define PROBING_CONVERTER_LOAD_STATE_H

#include <sqlite3.h>

#include "meta.h"
#include "resolve.h"
#include "vtab.h"

struct sample_row {
    int64_t ts; /* ns UTC */
    int64_t thread;
    uint64_t cpu_us, count, flags;
    uint32_t stack; /* 0: none */
};

struct sample_batch {
    struct sample_row *rows;
    size_t n, cap;
    double part; /* place in the file that it comes from, 0..1 */
};

struct load {
    sqlite3 *db;
    uint32_t trace;            /* its id; row ids are trace << 40 | n */
    struct vtab_shared shared; /* reader and epochs of this trace */
    struct strips strips;      /* filled in while the samples are loaded */
    struct meta *meta;
    struct modules *modules; /* NULL: nobody will ask for rows of table module */
    struct resolver *resolver;
    struct stackset *stacks; /* collects its stacks */
    /* Gives the samples of the next block, perhaps none, valid until the next call. *batch must be NULL in the first call, and then what
     * the previous call gave. Returns 1; 0 at the end; -ENOMEM. */
    int (*samples_next)(void *ctx, const struct sample_batch **batch);
    /* Called by the thread that resolves the samples when the queue of `stacks` is full: waits until it has space. Returns 0 or -errno. */
    int (*wait_for_space)(void *ctx);
    void *samples_ctx;
    /* nobody will ask for rows of table sample: only what samples name, and their sums, are needed */
    int no_rows;
    /* called for each batch; a nonzero result stops (SQLITE_INTERRUPT) */
    int (*tick)(void *ctx, double part);
    void *tick_ctx;
    int alone;                /* no second thread may be started */
    struct torch_pipe *calls; /* torch_pipe.h; NULL: none at present */
    uint64_t samples;         /* result: number of ticks, counted by thread */
    uint64_t unresolved;      /* result: rows whose stack is not in the trace */
};

#define LOAD_STATEMENTS 48

/* The trace that the virtual tables and functions of a database currently refer to; it stays the same during a statement. */
struct load_now {
    struct load *load;
    const struct vtab_shared *shared; /* that of `load` */
    /* prepared statements that every trace needs; NULL after the last */
    sqlite3_stmt *kept[LOAD_STATEMENTS];
};

#endif
