/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - writes a report on a database as one HTML page that needs nothing but a browser.
 *
 *     struct report r = {.db = db, .title = NULL, .timeout = 8};
 *     int rc = report_write(&r, out);            // 0 or -errno; the page itself says which queries failed
 *
 * The page consists of the files in tools/report/: style.css, the scripts in the order of their names, and a JSON text with the results of
 * the *.sql files, which are written like questions (question.h). The title of each result but the first begins with its kind:
 *
 *     --= KIND: TITLE
 *     band       key, t, value [, step]   all keys in one band of minimum, mean and maximum; the largest values one by one
 *     grid       key, t, length, value    a row for each key, time across, the extremes of each cell (report_grid.c)
 *     share      key, t, length           the same layout, but each cell shows how much of its time is covered
 *     lines      key, t, value            a line for each key; when there are many, the highest and the lowest ones
 *     rates      key, t, counter, process as lines, of the counter's increase per second since the previous row; rows of a process by time
 *     parts      t, value ...             means over time, stacked, each named by its column
 *     table      any                      a plain table of the first REPORT_ROWS rows
 *     rows       any                      the first REPORT_MANY rows, for a script of the page that knows the columns
 *
 * t: seconds since the epoch, length: seconds. The end of a column's name is its unit: _s, _mb, _ms, _percent, _w, _bps.
 */
#ifndef PROBING_TOOLS_REPORT_H
#define PROBING_TOOLS_REPORT_H

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_ROWS 200
#define REPORT_MANY 24000

struct report {
    sqlite3 *db;
    const char *title; /* NULL: the recorded command */
    double timeout;    /* limit in processor seconds for each result; 0: none */
    /* Filled in: */
    FILE *out;
    double t0, t1; /* first and last time of the traces */
    int64_t traces;
    double deadline; /* of the SQL that is running, in processor seconds; 0: none */
    int damaged;     /* a result could not be read: the page says which */
};

/* Returns 0 or -errno. The database is not changed; temporary tables are made and removed again. */
int report_write(struct report *r, FILE *out);

/* ---- its parts ---- */

/* Starts the time limit of the SQL that begins now. */
void report_deadline(struct report *r);
/* Runs the SQL of one result, and writes it to r->out as a JSON object {kind, title, sql, ...}, which also says what went wrong. Returns
 * -ETIMEDOUT when it took longer than r->timeout, else 0. */
struct question_part;
int report_part(struct report *r, const struct question_part *part, int is_evidence);
/* For the kinds grid and share (report_grid.c): run the statement to its end; return SQLite's code. */
int report_grid(struct report *r, sqlite3_stmt *st);
int report_share(struct report *r, sqlite3_stmt *st);
/* Writes the samples as a tree, with its weights by rank and time, as a JSON object; null when there are no samples. Returns 0 or -errno. */
int report_flame(struct report *r);

#endif
