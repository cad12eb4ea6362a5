/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_state.h - what the parts of a conversion share about the trace that is being loaded: prepare.h fills it in, load.h calls them
 * (load_sample.h, sample_rows.h, load_torch.h), they know this alone.
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
    double part; /* of the file, where it comes from: 0..1 */
};

struct load {
    sqlite3 *db;
    uint32_t trace;            /* its id: row ids are trace << 40 | n */
    struct vtab_shared shared; /* reader and epochs of this trace */
    struct strips strips;      /* filled while the samples are loaded */
    struct meta *meta;
    struct modules *modules; /* NULL: nobody will ask for their rows */
    struct resolver *resolver;
    struct stackset *stacks; /* where its stacks go */
    /* The next block's samples, perhaps none, valid until the next call. *batch is NULL at first, and then what the call before gave. 1; 0
     * at the end; -ENOMEM. */
    int (*samples_next)(void *ctx, const struct sample_batch **batch);
    /* Whoever resolves the samples, when the queue of `stacks` is full: waits until it is not. 0 or -errno. */
    int (*wait_for_space)(void *ctx);
    void *samples_ctx;
    int no_rows; /* nobody will ask for rows of table sample: what they name and add up to is all */
    int (*tick)(void *ctx, double part); /* called per batch; not 0: stop (SQLITE_INTERRUPT) */
    void *tick_ctx;
    int alone;                /* no second thread is to be made */
    struct torch_pipe *calls; /* torch_pipe.h; NULL: none at the moment */
    uint64_t samples;         /* result: ticks of the sampler, by thread */
    uint64_t unresolved;      /* result: rows whose stack is not in the trace */
};

#define LOAD_STATEMENTS 48

/* The trace that a database's virtual tables and functions are about, from one statement to the next. */
struct load_now {
    struct load *load;
    const struct vtab_shared *shared;    /* its */
    sqlite3_stmt *kept[LOAD_STATEMENTS]; /* that each trace needs, NULL behind the last */
};

#endif
