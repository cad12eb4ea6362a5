/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_rows.h - puts rows into table torch_call in the order of their ids. A call gets its id when it begins, but its row is complete only
 * when it has ended, after all calls inside it. Inserted in that order, rows would leave pages half filled and take twice the time; so they
 * wait for the rows with lower ids, some thousands at most.
 *
 *     struct torch_rows t;
 *     rc = torch_rows_start(&t, db, pipe, base, 0);
 *     id = torch_rows_begin(&t);               // 0: an error, which torch_rows_end() returns
 *     torch_rows_put(&t, &row);                 // each id is completed once, either by this call,
 *     torch_rows_leave_out(&t, id);             // or by this one
 *     rc = torch_rows_end(&t);
 *
 * Functions return SQLite result codes. Call them in the thread of the database; with a pipe, in the thread that fills the pipe.
 */
#ifndef PROBING_CONVERTER_TORCH_ROWS_H
#define PROBING_CONVERTER_TORCH_ROWS_H

#include "torch_pipe.h"

#define TORCH_ROWS_WAIT 8192

struct torch_rows {
    sqlite3_stmt *insert;
    struct torch_pipe *pipe;
    int64_t base, begun; /* the last id given out is base + begun */
    /* ids base + first .. base + begun are waiting, each at its number % TORCH_ROWS_WAIT */
    int64_t first;
    struct torch_row *wait;
    int has_none; /* 1: there is nowhere to put rows, so that none wait: only ids are given out */
    int rc;
};

#define TORCH_ROWS_NEAR 16000 /* numbers below this take two bytes */
#define TORCH_ROWS_NAMES                                                                           \
    (1ull << 36) /* a name's number is less, so that its rows lie among those of its trace */

/*
 * Returns the number, within the trace, of the row of torch_module that a call belongs to: for stages 0 and 1 the row of the module in that
 * stage, for other stages a row of the stage itself. The rows of stage 1 are in reverse order, because a backward pass runs from the last
 * module to the first, and finding the row after the previous one takes half the time.
 */
static inline int64_t torch_rows_module(uint64_t name, unsigned stage) {
    if (stage > 1)
        return (int64_t)stage;
    if (name >= TORCH_ROWS_NEAR)
        return 5 + 2 * (int64_t)name + (int64_t)stage;
    return stage ? 4 + 2 * TORCH_ROWS_NEAR - (int64_t)name : 5 + (int64_t)name;
}
/* New ids are base + begun + 1, base + begun + 2, ... Rows with lower ids, of calls that began when the trace was read before, may be put
 * too. Rows go into the pipe (torch_pipe.h) if there is one, else into db; with neither, no rows are inserted. */
int torch_rows_start(struct torch_rows *t, sqlite3 *db, struct torch_pipe *pipe, int64_t base,
                     int64_t begun);
int64_t torch_rows_begin(struct torch_rows *t);
int torch_rows_put(struct torch_rows *t, const struct torch_row *row);
int torch_rows_leave_out(struct torch_rows *t, int64_t id);
/* Puts the rows that are still waiting, and frees everything. */
int torch_rows_end(struct torch_rows *t);

#endif
