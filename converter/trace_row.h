/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_row.h - what a database says of a trace as a whole, once its other rows are inserted: its row of table trace_file, what was lost of
 * it (table lost), and a sentence about its damage.
 *
 *     struct trace_row t = {.db = db, .trace = id, .in = &in, .meta = &meta, .reader = r, ...};
 *     reader_loss(r, &t.loss);
 *     reader_totals(r, &t.totals);
 *     int rc = trace_row_loss(&t);                              // first, because the row contains the number lost
 *     int damaged = trace_row_damage(&t, line, sizeof line);
 *     rc = trace_row_write(&t, !damaged && meta.end_reason);
 *
 * Pointers are borrowed. Functions return SQLite result codes, and run in the thread of the database.
 */
#ifndef PROBING_CONVERTER_TRACE_ROW_H
#define PROBING_CONVERTER_TRACE_ROW_H

#include <sqlite3.h>

#include "align.h"
#include "inputs.h"
#include "meta.h"
#include "reader.h"

struct trace_row {
    sqlite3 *db;
    uint32_t trace; /* id of the trace */
    const struct input *in;
    unsigned part; /* number of the trace in its file, counted from 1 */
    int partial;   /* 1: only a part of the trace was asked for */
    struct meta *meta;
    struct reader *reader;
    const struct align_boot
        *boot;             /* NULL: the file has got this trace since the clocks were aligned */
    const char *recording; /* by align_recording(), when boot is known */
    struct reader_loss loss;
    struct reader_totals totals;
    uint64_t unresolved; /* samples whose stack is not in the trace */
    uint64_t lost;       /* set by trace_row_loss(): number of records known to be missing */
};

int trace_row_loss(struct trace_row *t);
int trace_row_write(const struct trace_row *t, int complete);
/* Writes into `line` what is wrong with the trace, or "" when nothing is wrong. Returns 1 when a part of the trace is missing, else 0. */
int trace_row_damage(const struct trace_row *t, char *line, size_t size);

#endif
