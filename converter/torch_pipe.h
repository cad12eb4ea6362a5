/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_pipe.h - rows of table torch_call from the thread that makes them to the one that inserts them: of a trace of training they are
 * most of all rows, and to decode them takes a third of the time that their inserting takes.
 *
 *     rc = torch_pipe_register(db, &now);        // once: the virtual table `probing_calls`
 *     rc = torch_pipe_run(load, make, ctx);      // make(ctx, pipe) in a thread of its own; what it puts is inserted meanwhile
 *     rc = torch_pipe_put(pipe, &row);           // by make: SQLITE_INTERRUPT: nobody inserts any more
 *
 * SQLite result codes. While it runs, `make` alone may use the trace: its reader, threads and clock. Without a second thread (--threads 1,
 * or none can be made) make is called with pipe NULL, and inserts by itself.
 */
#ifndef PROBING_CONVERTER_TORCH_PIPE_H
#define PROBING_CONVERTER_TORCH_PIPE_H

#include "load_state.h"

struct torch_pipe;

/* The columns of torch_call (schema/36_torch.sql); 0 is NULL in call, parent, call_tid. */
struct torch_row {
    int64_t id, ts, duration, thread, module, call, parent, step, seq, call_tid;
    uint32_t depth, flags;
    uint8_t stage, has_duration, has_step;
    uint8_t ended; /* torch_rows.h: private */
};

int torch_pipe_register(sqlite3 *db, struct load_now *now);
int torch_pipe_run(struct load *l, int (*make)(void *ctx, struct torch_pipe *p), void *ctx);
int torch_pipe_put(struct torch_pipe *p, const struct torch_row *row);

#endif
