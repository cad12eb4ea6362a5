/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_run.h - SQL from a person, answered on a stream: the statements of a text, one result after the other.
 *
 *     struct sql_run run = {.db = db, .format = "table", .out = stdout};
 *     int code = sql_run(&run, "SELECT ...; SELECT ...");     // says what was wrong; run.results, run.rows
 *
 * The text may be in the words of sql_dialect.h. A statement that fails leaves nothing of itself on the stream, and those
 * after it are not run. sql_run_interrupt() may be called from a signal handler or another thread, the rest from one thread; it ends only
 * a statement that runs just then, so who uses it has `stopped` too.
 */
#ifndef PROBING_TOOLS_SQL_RUN_H
#define PROBING_TOOLS_SQL_RUN_H

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>

#include "options.h"
#include "rows.h"

/* A named parameter of the statements (":step"); value NULL: NULL. */
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
    double timeout; /* seconds for the whole text; 0: none */
    int (*stopped)(
        void); /* asked often: nonzero ends the statement that runs, or the next; NULL: nobody */
    unsigned results; /* out: how many statements had one */
    uint64_t rows;    /* out: of the last of them */
};

/* What every command with SQL behind it takes: rows of its table of options (options.h). */
#define SQL_RUN_OPTIONS(run)                                                                       \
    OPTION_CALL("format", 0, sql_run_format, run), OPTION_WORD("csv", 0, &(run)->format, "csv"),   \
        OPTION_WORD("json", 0, &(run)->format, "json"),                                            \
        OPTION_WORD("markdown", 0, &(run)->format, "markdown"),                                    \
        OPTION_WORD("box", 0, &(run)->format, "box"),                                              \
        OPTION_WORD("table", 0, &(run)->format, "table"),                                          \
        OPTION_WORD("jsonl", 0, &(run)->format, "jsonl"),                                          \
        OPTION_NUMBER("timeout", 0, &(run)->timeout, 0.001, 1e9, OPTION_SECONDS)
option_take sql_run_format;

/* TOOL_OK, TOOL_USAGE (a format for one result got more) or TOOL_FAILED, said. */
int sql_run(struct sql_run *r, const char *sql);
/* Column i of the row that the statement stands on, valid until its next step. */
struct rows_value sql_run_value(sqlite3_stmt *st, int i);
/* The statement that runs ends with "interrupted". */
void sql_run_interrupt(struct sql_run *r);

#endif
