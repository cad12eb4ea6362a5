/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - a database as one page of HTML that needs nothing but a browser.
 *
 *     struct report r = {.db = db, .title = NULL, .timeout = 8};
 *     int rc = report_write(&r, out);            // 0 or -errno; what could not be asked is said on the page
 *
 * The page is what lies in tools/report/: style.css, the scripts in the order of their names, and a JSON text with the results of
 * its *.sql, which are written as questions are (question.h). The title of each result but the first begins with what is drawn:
 *
 *     --= KIND: TITLE
 *     band       key, t, value [, step]   all keys in one band of least, mean and most; the largest values one by one
 *     grid       key, t, length, value    a row for each key, time across, the extremes of each cell (report_grid.c)
 *     share      key, t, length           the same; of the cell's time, how much is covered
 *     lines      key, t, value            a line for each key; of many the highest and the lowest
 *     rates      key, t, counter, trace   the same of how much the counter grew a second since the row before; rows of a trace by time
 *     parts      t, value ...             means over time, on top of one another, each by its column's name
 *     table      any                      as it is; the first REPORT_ROWS rows
 *     rows       any                      for a script of the page, which knows the columns; the first REPORT_MANY
 *
 * t: seconds since the epoch, length: seconds. A column's unit is the end of its name: _s, _mb, _ms, _percent, _w, _bps.
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
    double timeout;    /* processor seconds for each result; 0: none */
    /* Filled in: */
    FILE *out;
    double t0, t1; /* first and last time of the traces */
    int64_t traces;
    double deadline; /* of the SQL that runs, processor seconds; 0: none */
};

/* 0 or -errno. The database is not changed; temporary tables are made and taken back. */
int report_write(struct report *r, FILE *out);

/* ---- its parts ---- */

/* The SQL that begins now has its time. */
void report_deadline(struct report *r);
/* The SQL of one result, as a JSON object {kind, title, sql, ...} on r->out. What went wrong is said within it; -ETIMEDOUT: it took
 * longer than r->timeout, else 0. */
struct question_part;
int report_part(struct report *r, const struct question_part *part, int is_evidence);
/* The kinds grid and share (report_grid.c): the statement is run to its end; SQLite's code. */
int report_grid(struct report *r, sqlite3_stmt *st);
int report_share(struct report *r, sqlite3_stmt *st);
/* The samples as a tree with its weights by rank and time: a JSON object, or null where there are none. 0 or -errno. */
int report_flame(struct report *r);

#endif
