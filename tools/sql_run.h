/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_run.h - runs SQL from a person and writes the results to a stream: the statements of a text, one result after the other.
 *
 *     struct sql_run run = {.db = db, .format = "table", .out = stdout};
 *     int code = sql_run(&run, "SELECT ...; SELECT ...");     // prints what was wrong; sets run.results, run.rows
 *
 * The text may use the dialect of sql_dialect.h. A statement that fails leaves nothing of its result on the stream, and the statements
 * after it are not run. sql_run_interrupt() may be called from a signal handler or another thread, everything else from one thread only. It
 * ends only a statement that is running at that moment, so a program that uses it needs `stopped` as well.
 */
#ifndef PROBING_TOOLS_SQL_RUN_H
#define PROBING_TOOLS_SQL_RUN_H

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>

#include "options.h"
#include "rows.h"

/* A named parameter of the statements (":step"). A NULL value is NULL in SQL. */
struct sql_param {
    const char *name, *value;
    int is_number;
};

struct sql_run {
    sqlite3 *db;
    const struct sql_param *params;
    unsigned nparams;
    const char *format; /* rows.h */
    FILE *out;
    double timeout; /* limit in seconds for the whole text; 0: none */
    int (*stopped)(
        void); /* called often: a nonzero result ends the running statement, or the next one; may be NULL */
    unsigned results; /* out: number of statements that had a result */
    uint64_t rows;    /* out: number of rows of the last result */
};

/* Rows for the table of options (options.h) of every command that runs SQL. */
#define SQL_RUN_OPTIONS(run)                                                                       \
    OPTION_CALL("format", 0, sql_run_format, run), OPTION_WORD("csv", 0, &(run)->format, "csv"),   \
        OPTION_WORD("json", 0, &(run)->format, "json"),                                            \
        OPTION_WORD("markdown", 0, &(run)->format, "markdown"),                                    \
        OPTION_WORD("box", 0, &(run)->format, "box"),                                              \
        OPTION_WORD("table", 0, &(run)->format, "table"),                                          \
        OPTION_WORD("jsonl", 0, &(run)->format, "jsonl"), OPTION_TIMEOUT(&(run)->timeout)
option_take sql_run_format;

/* Returns TOOL_OK, TOOL_USAGE (several results for a format that can hold only one) or TOOL_FAILED, after printing why. */
int sql_run(struct sql_run *r, const char *sql);
/* Returns column i of the current row of the statement, valid until its next step. */
struct rows_value sql_run_value(sqlite3_stmt *st, int i);
/* Makes the running statement end with the error "interrupted". */
void sql_run_interrupt(struct sql_run *r);

#endif
