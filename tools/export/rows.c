/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - writes a view or table of the database (--table, by default the samples) as CSV or JSON lines, with the columns that
 * converter/SCHEMA.md names. The rows are written as by probing-query, without a limit.
 */
#include <errno.h>
#include <string.h>

#include "../sql_run.h"
#include "export.h"

/* Returns whether the table has the column (NULL: any), or -errno. */
static int has(struct export *x, const char *table, const char *column) {
    sqlite3_stmt *st = NULL;
    int rc = export_prepare(
        x, "SELECT count(*) FROM pragma_table_info(?1) WHERE ?2 IS NULL OR name = ?2", &st);

    if (rc == 0) {
        sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, column, -1, SQLITE_STATIC);
        if ((rc = export_step(x, st)) > 0)
            rc = sqlite3_column_int(st, 0) > 0;
    }
    sqlite3_finalize(st);
    return rc;
}

/* Appends the part of a query that leaves out what was not asked for. It is an error if the table has no column for it. */
static int filter(struct export *x, const char *table, sqlite3_str *sql) {
    const struct {
        int asked;
        const char *column, *what, *where;
    } filters[] = {
        {x->part_of_ranks, "trace_id", "processes",
         "trace_id IN (SELECT id FROM temp.export_trace)"},
        {x->from != INT64_MIN || x->to != INT64_MAX, "timestamp", "times",
         "timestamp BETWEEN :from / 1e9 AND :to / 1e9"},
        {x->cpu, "state", "states (--cpu)", "state = 'running'"},
    };
    const char *with = " WHERE ";

    if (x->python)
        return export_wrong(x, -EINVAL, "--python is for stacks: a table has a column frame_type");
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        int rc = filters[i].asked ? has(x, table, filters[i].column) : 0;
        if (rc < 0)
            return rc;
        if (filters[i].asked && !rc)
            return export_wrong(x, -EINVAL,
                                "%s has no %s to choose by: ask it in SQL, by probing query", table,
                                filters[i].what);
        if (filters[i].asked) {
            sqlite3_str_appendf(sql, "%s%s", with, filters[i].where);
            with = " AND ";
        }
    }
    return 0;
}

static int put_rows(struct export *x, sqlite3_stmt *st, struct rows *rows) {
    enum { MOST = 100 };
    struct rows_value v[MOST];
    const char *names[MOST];
    int n = sqlite3_column_count(st), rc;

    if (n > MOST)
        return -E2BIG;
    for (int i = 0; i < n; i++) {
        if (!(names[i] = sqlite3_column_name(st, i)))
            return -ENOMEM;
    }
    rc = rows_begin(rows, (unsigned)n, names);
    while (rc == 0 && (rc = export_step(x, st)) > 0) {
        for (int i = 0; i < n; i++)
            v[i] = sql_run_value(st, i);
        rc = rows_row(rows, v);
    }
    rows_end(rows);
    return rc;
}

static int write_rows(struct export *x, const char *format) {
    const char *table = x->table ? x->table : "samples";
    sqlite3_str *sql = sqlite3_str_new(NULL);
    sqlite3_stmt *st = NULL;
    struct rows *rows = NULL;
    int rc = has(x, table, NULL);

    if (rc == 0)
        rc = export_wrong(
            x, -EINVAL,
            "--table %s: there is no such view or table (probing query --tables lists them)",
            table);
    sqlite3_str_appendf(sql, "SELECT * FROM \"%w\"", table);
    if (rc > 0)
        rc = filter(x, table, sql);
    char *text = sqlite3_str_finish(sql);
    if (rc == 0)
        rc = text ? export_prepare(x, text, &st) : -ENOMEM;
    if (rc == 0)
        rc = rows_open(&rows, format, x->out);
    if (rc == 0)
        rc = put_rows(x, st, rows);
    rows_close(rows);
    sqlite3_finalize(st);
    sqlite3_free(text);
    return rc;
}

static int write_csv(struct export *x) {
    return write_rows(x, "csv");
}

static int write_jsonl(struct export *x) {
    return write_rows(x, "jsonl");
}

const struct export_format export_csv = {"csv", ".csv", "a view's rows (--table), RFC 4180", 0,
                                         write_csv};
const struct export_format export_jsonl = {
    "jsonl", ".jsonl", "a view's rows (--table), a JSON object a line", 0, write_jsonl};
