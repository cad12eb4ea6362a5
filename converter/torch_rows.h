/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_rows.h - the rows of table torch_call in the order of their ids. A call gets its id when it begins, and is a row when it has ended,
 * after all that lie in it: put as they come, rows would lie in half-filled pages, and take twice the time. So they wait for those
 * before them, some thousands at most.
 *
 *     struct torch_rows t;
 *     rc = torch_rows_start(&t, db, base);
 *     id = torch_rows_begin(&t);               // 0: an error, told by torch_rows_end()
 *     torch_rows_put(&t, &row);                 // each that began ends so once,
 *     torch_rows_leave_out(&t, id);             // or so
 *     rc = torch_rows_end(&t);
 *
 * SQLite result codes. The thread of the database.
 */
#ifndef PROBING_CONVERTER_TORCH_ROWS_H
#define PROBING_CONVERTER_TORCH_ROWS_H

#include <sqlite3.h>
#include <stdint.h>

#define TORCH_ROWS_WAIT 8192

struct
    torch_row { /* the columns of torch_call (schema/36_torch.sql); 0 is NULL in call, parent, call_tid; module: of stages 0 and 1 */
    int64_t id, ts, duration, thread, module, call, parent, step, seq, call_tid;
    uint32_t depth, flags;
    uint8_t stage, has_duration, has_step;
    uint8_t ended; /* private */
};

struct torch_rows {
    sqlite3_stmt *insert;
    int64_t base, begun; /* the last id is base + begun */
    int64_t first;       /* waiting are first .. begun, by number % TORCH_ROWS_WAIT */
    struct torch_row *wait;
    int rc;
};

/* Ids are base + 1, base + 2, ... */
int torch_rows_start(struct torch_rows *t, sqlite3 *db, int64_t base);
int64_t torch_rows_begin(struct torch_rows *t);
int torch_rows_put(struct torch_rows *t, const struct torch_row *row);
int torch_rows_leave_out(struct torch_rows *t, int64_t id);
/* Puts what waits, and frees. */
int torch_rows_end(struct torch_rows *t);

#endif
