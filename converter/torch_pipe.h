/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_pipe.h - passes rows of table torch_call from the thread that makes them to the thread that inserts them: in a trace of training
 * they are most of all rows, and decoding them takes a third of the time that inserting them takes.
 *
 *     rc = torch_pipe_register(db, &now);        // once: the virtual table `probing_calls`
 *     rc = torch_pipe_run(load, make, ctx);      // runs make(ctx, pipe) in a thread of its own, and meanwhile inserts the rows that it puts
 *     rc = torch_pipe_put(pipe, &row);           // called by make; SQLITE_INTERRUPT: nobody inserts rows any more
 *
 * Functions return SQLite result codes. While it runs, only `make` may use the trace: its reader, threads and clock. Without a second
 * thread (--threads 1, or when none can be started) make is called with pipe NULL, and inserts the rows itself.
 */
#ifndef PROBING_CONVERTER_TORCH_PIPE_H
#define PROBING_CONVERTER_TORCH_PIPE_H

#include "load_state.h"

struct torch_pipe;

/* The columns of torch_call (schema/36_torch.sql). In call, parent and call_tid 0 stands for NULL. */
struct torch_row {
    int64_t id, ts, duration, thread, module, call, parent, step, seq, call_tid;
    uint32_t depth, flags;
    uint8_t stage, has_duration, has_step;
    uint8_t ended; /* private to torch_rows.h */
};

int torch_pipe_register(sqlite3 *db, struct load_now *now);
int torch_pipe_run(struct load *l, int (*make)(void *ctx, struct torch_pipe *p), void *ctx);
int torch_pipe_put(struct torch_pipe *p, const struct torch_row *row);

#endif
