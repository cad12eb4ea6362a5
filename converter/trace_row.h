/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_row.h - what a database says of a trace as a whole, when its other rows are there: its row of table trace_file, what was lost
 * of it (table lost), and a sentence on its damage.
 *
 *     struct trace_row t = {.db = db, .trace = id, .in = &in, .meta = &meta, .reader = r, ...};
 *     reader_loss(r, &t.loss);
 *     reader_totals(r, &t.totals);
 *     int rc = trace_row_loss(&t);                              // first: the row says how many
 *     int damaged = trace_row_damage(&t, line, sizeof line);
 *     rc = trace_row_write(&t, !damaged && meta.end_reason);
 *
 * Pointers are borrowed. SQLite result codes; the thread of the database.
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
    uint32_t trace; /* its id */
    const struct input *in;
    unsigned part; /* which trace of its file, from 1 */
    int partial;   /* only some of it was asked for */
    struct meta *meta;
    struct reader *reader;
    const struct align_boot
        *boot;             /* NULL: the file has grown this trace since the clocks were aligned */
    const char *recording; /* align_recording(), where boot is known */
    struct reader_loss loss;
    struct reader_totals totals;
    uint64_t unresolved; /* samples whose stack is not in the trace */
    uint64_t lost;       /* trace_row_loss(): records that are known to be missing */
};

int trace_row_loss(struct trace_row *t);
int trace_row_write(const struct trace_row *t, int complete);
/* What is wrong with the trace, in one line, "" when nothing is. 1: something of it is not there; 0. */
int trace_row_damage(const struct trace_row *t, char *line, size_t size);

#endif
