/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../converter/sql_dialect.h"
#include "../converter/sql_heads.h"
#include "../converter/sql_select.h"
#include "common.h"

#define STEPS_BETWEEN_LOOKS 100000 /* steps of SQLite's virtual machine: about a millisecond */

struct rows_value sql_run_value(sqlite3_stmt *st, int i) {
    struct rows_value v = {.kind = ROWS_NULL};

    switch (sqlite3_column_type(st, i)) {
    case SQLITE_INTEGER:
        return rows_int(sqlite3_column_int64(st, i));
    case SQLITE_FLOAT:
        return rows_real(sqlite3_column_double(st, i));
    case SQLITE_TEXT:
        v.kind = ROWS_TEXT;
        v.p = (const char *)sqlite3_column_text(st, i);
        break;
    case SQLITE_BLOB:
        v.kind = ROWS_BLOB;
        v.p = sqlite3_column_blob(st, i);
        break;
    }
    v.n = (size_t)sqlite3_column_bytes(st, i);
    if (!v.p)
        v.p = "";
    return v;
}

static int print_result(sqlite3_stmt *st, const char *typed, struct rows *rows, uint64_t *count) {
    int n = sqlite3_column_count(st), rc;
    char *memory = NULL;
    const char **names = calloc((size_t)n, sizeof *names);
    struct rows_value *v = calloc((size_t)n, sizeof *v);

    rc = names && v ? SQLITE_OK : SQLITE_NOMEM;
    for (int i = 0; rc == SQLITE_OK && i < n; i++) {
        if (!(names[i] = sqlite3_column_name(st, i)))
            rc = SQLITE_NOMEM;
    }
    if (rc == SQLITE_OK && sql_heads(typed, names, n, &memory) != 0)
        rc = SQLITE_NOMEM;
    /* The first row is fetched before the header is printed: a query that fails leaves the stream empty. */
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        if (rows_begin(rows, (unsigned)n, names) < 0)
            rc = SQLITE_NOMEM;
        while (rc == SQLITE_ROW) {
            for (int i = 0; i < n; i++)
                v[i] = sql_run_value(st, i);
            rc = rows_row(rows, v) < 0 ? SQLITE_NOMEM : sqlite3_step(st);
        }
        *count = rows_why(rows) ? 0 : rows_end(rows);
        if (rows_why(rows))
            rc = SQLITE_NOMEM;
    }
    free(memory);
    free(names);
    free(v);
    return rc;
}

struct limits {
    double end; /* 0: none */
    int (*stopped)(void);
};

static int is_over(void *arg) {
    const struct limits *l = arg;

    return (l->stopped && l->stopped()) || (l->end > 0 && tool_seconds() > l->end);
}

/* Returns what may help against an error. */
static const char *advice(const char *message, const char *sql) {
    static const char column[] = "no such column: ";
    char quoted[80];

    if (strstr(message, "single-quotes")) /* SQLite says it itself from 3.46 on */
        return "";
    if (strncmp(message, column, sizeof column - 1) == 0) {
        snprintf(quoted, sizeof quoted, "\"%s\"", message + sizeof column - 1);
        if (strstr(sql, quoted))
            return " (a text stands in single quotes)";
    }
    return strncmp(message, "no such ", 8) == 0 ? " (probing-query --tables lists the names)" : "";
}

static int failed(const struct sql_run *r, const struct rows *rows, const char *sql, int rc,
                  double end) {
    const char *message = rows_why(rows)       ? rows_why(rows)
                          : rc == SQLITE_NOMEM ? "no memory"
                                               : sqlite3_errmsg(r->db);

    /* A database that was made for this question alone is writable but for the lock that its maker keeps. */
    if (rc == SQLITE_BUSY && sqlite3_db_readonly(r->db, "main") == 0)
        message = "attempt to write a readonly database";
    if (rc == SQLITE_INTERRUPT && end > 0 && tool_seconds() > end)
        return tool_fail("cannot answer: it took longer than --timeout %g s", r->timeout);
    return tool_fail("cannot answer: %s%s", message, advice(message, sql));
}

/* Binds the parameters. Returns TOOL_OK, or an exit code if the statement has some and r has none: SQLite would take them for NULL. */
static int bind(const struct sql_run *r, sqlite3_stmt *st) {
    for (int i = 1; r->nparams == 0 && i <= sqlite3_bind_parameter_count(st); i++) {
        const char *name = sqlite3_bind_parameter_name(st, i);
        return tool_fail("cannot answer: parameter %s has no value (write it into the SQL)",
                         name ? name : "?");
    }
    for (unsigned i = 0; i < r->nparams; i++) {
        const struct sql_param *p = &r->params[i];
        int at = sqlite3_bind_parameter_index(st, p->name);
        if (!at || !p->value)
            continue;
        if (p->is_number)
            sqlite3_bind_int64(st, at, strtoll(p->value, NULL, 10));
        else
            sqlite3_bind_text(st, at, p->value, -1, SQLITE_STATIC);
    }
    return TOOL_OK;
}

/* Runs the statements of `sql`, which is in SQLite's dialect by now; typed: the same as it was before. */
static int run_all(struct sql_run *r, struct rows *rows, const char *sql, const char *typed,
                   double end) {
    for (; *sql; typed = sql_heads_after(typed)) {
        const char *from = sql;
        sqlite3_stmt *st = NULL;
        if (r->stopped && r->stopped()) /* interrupted while no statement ran */
            return tool_fail("cannot answer: interrupted");
        int rc = sqlite3_prepare_v2(r->db, sql, -1, &st, &sql);
        if (rc != SQLITE_OK)
            return failed(r, rows, from, rc, end);
        if (!st) /* a comment, or blanks at the end */
            continue;
        int bound = bind(r, st);
        if (bound != TOOL_OK) {
            sqlite3_finalize(st);
            return bound;
        }
        if (sqlite3_column_count(st) == 0) {
            rc = sqlite3_step(st);
        } else if (r->results && rows_has_one(rows)) {
            sqlite3_finalize(st);
            return tool_usage(
                "%s has room for one result, and this is the second statement that has one",
                r->format);
        } else {
            if (r->results++)
                fputc('\n', r->out);
            rc = print_result(st, typed, rows, &r->rows);
        }
        int code = rc == SQLITE_DONE ? TOOL_OK : failed(r, rows, from, rc, end);
        sqlite3_finalize(st);
        if (code != TOOL_OK)
            return code;
    }
    return TOOL_OK;
}

int sql_run(struct sql_run *r, const char *sql) {
    char *text, *plain = NULL, why[SQL_DIALECT_WHY];
    struct rows *rows;
    struct limits limits = {.stopped = r->stopped};

    r->results = 0;
    r->rows = 0;
    if (strcmp(r->format, "arrow") == 0 && isatty(fileno(r->out)))
        return tool_usage("arrow is not for the terminal: send it to a file or a program");
    int err = sql_dialect(sql, &text, why);
    if (!err && (err = sql_select(r->db, text, &plain, why)) < 0)
        free(text);
    if (err == -EINVAL)
        return tool_fail("cannot answer: %s", why);
    if (plain) {
        free(text);
        text = plain;
    }
    if (err < 0 || rows_open(&rows, r->format, r->out) < 0) {
        free(err < 0 ? NULL : text);
        return tool_fail("cannot print: no memory");
    }
    if (r->timeout > 0)
        limits.end = tool_seconds() + r->timeout;
    if (r->timeout > 0 || r->stopped)
        sqlite3_progress_handler(r->db, STEPS_BETWEEN_LOOKS, is_over, &limits);
    int code = run_all(r, rows, text, sql, limits.end);
    sqlite3_progress_handler(r->db, 0, NULL, NULL);
    rows_close(rows);
    free(text);
    return code;
}

int sql_run_format(const char *name, const char *value, void *into) {
    if (!rows_is_format(value))
        return tool_usage("no %s '%s': choose %s", name, value, ROWS_FORMATS);
    ((struct sql_run *)into)->format = value;
    return TOOL_OK;
}

void sql_run_interrupt(struct sql_run *r) {
    sqlite3_interrupt(r->db);
}
