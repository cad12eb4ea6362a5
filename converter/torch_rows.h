/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_rows.h - the rows of table torch_call in the order of their ids. A call gets its id when it begins, and is a row when it has ended,
 * after all that lie in it: put as they come, rows would lie in half-filled pages, and take twice the time. So they wait for those
 * before them, some thousands at most.
 *
 *     struct torch_rows t;
 *     rc = torch_rows_start(&t, db, pipe, base, 0);
 *     id = torch_rows_begin(&t);               // 0: an error, returned by torch_rows_end()
 *     torch_rows_put(&t, &row);                 // each that began ends so once,
 *     torch_rows_leave_out(&t, id);             // or so
 *     rc = torch_rows_end(&t);
 *
 * SQLite result codes. The thread of the database; with a pipe, the one that fills it.
 */
#ifndef PROBING_CONVERTER_TORCH_ROWS_H
#define PROBING_CONVERTER_TORCH_ROWS_H

#include "torch_pipe.h"

#define TORCH_ROWS_WAIT 8192

struct torch_rows {
    sqlite3_stmt *insert;
    struct torch_pipe *pipe;
    int64_t base, begun; /* the last id is base + begun */
    int64_t first;       /* waiting are first .. begun, by number % TORCH_ROWS_WAIT */
    struct torch_row *wait;
    int rc;
};

#define TORCH_ROWS_NEAR 16000 /* modules whose numbers take two bytes */

/*
 * Which row of torch_module it is, within the trace: of stages 0 and 1 the module's for that stage, of others the stage's own. Those of
 * stage 1 lie the other way round: a backward pass goes from the last module to the first, and a row behind the one before is found
 * in half the time.
 */
static inline int64_t torch_rows_module(uint64_t name, unsigned stage) {
    if (stage > 1)
        return (int64_t)stage;
    if (name >= TORCH_ROWS_NEAR)
        return 5 + 2 * (int64_t)name + (int64_t)stage;
    return stage ? 4 + 2 * TORCH_ROWS_NEAR - (int64_t)name : 5 + (int64_t)name;
}
/* Ids are base + begun + 1, base + begun + 2, ...; those before, which began when the trace was read before, may be put. They go into
 * the pipe (torch_pipe.h), if there is one, else into db; with neither none becomes a row. */
int torch_rows_start(struct torch_rows *t, sqlite3 *db, struct torch_pipe *pipe, int64_t base,
                     int64_t begun);
int64_t torch_rows_begin(struct torch_rows *t);
int torch_rows_put(struct torch_rows *t, const struct torch_row *row);
int torch_rows_leave_out(struct torch_rows *t, int64_t id);
/* Puts what waits, and frees. */
int torch_rows_end(struct torch_rows *t);

#endif
