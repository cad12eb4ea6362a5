/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_query.c - probing-query: SQL on a database, or straight on traces. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "open_db.h"
#include "rows.h"

static const char help[] =
    "usage: probing-query [OPTION...] DB|TRACE... \"SQL\"\n"
    "       probing-query --tables DB|TRACE...\n"
    "\n"
    "Answers SQL from a database made by probing-convert, or from traces (they are converted into "
    "a\n"
    "temporary database first). SQL given as - is read from standard input.\n"
    "\n"
    "  -f, --format FORMAT  table (default), csv or json; --csv, --json: the same\n"
    "      --tables         list the names that can be asked, with their columns\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Exit code: 0; 1 when a damaged trace was read in part; 2 usage; 3 when nothing could be read or\n"
    "the SQL is wrong.\n"
    "\n"
    "  probing-query out.db \"SELECT func, file, seconds FROM hot_functions LIMIT 10\"\n"
    "  probing-query --format csv trace.zst \"SELECT timestamp, rss FROM memory_usage\" > "
    "rss.csv\n";

/* One list for people: which names there are and what they hold. */
static const char tables_sql[] =
    "SELECT m.name, m.type, (SELECT group_concat(name, ', ') FROM pragma_table_info(m.name)) AS "
    "columns"
    " FROM sqlite_master m WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"
    " ORDER BY m.type = 'table', m.name";

static struct rows_value column(sqlite3_stmt *st, int i) {
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

static int print_result(sqlite3_stmt *st, struct rows *rows, uint64_t *count) {
    int n = sqlite3_column_count(st), rc;
    const char **names = calloc((size_t)n, sizeof *names);
    struct rows_value *v = calloc((size_t)n, sizeof *v);

    rc = names && v ? SQLITE_OK : SQLITE_NOMEM;
    for (int i = 0; rc == SQLITE_OK && i < n; i++) {
        if (!(names[i] = sqlite3_column_name(st, i)))
            rc = SQLITE_NOMEM;
    }
    /* The first row is fetched before the header is printed: a query that fails leaves stdout empty. */
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        if (rows_begin(rows, (unsigned)n, names) < 0)
            rc = SQLITE_NOMEM;
        while (rc == SQLITE_ROW) {
            for (int i = 0; i < n; i++)
                v[i] = column(st, i);
            rc = rows_row(rows, v) < 0 ? SQLITE_NOMEM : sqlite3_step(st);
        }
        *count = rows_end(rows);
    }
    free(names);
    free(v);
    return rc;
}

static int sql_failed(sqlite3 *db) {
    const char *message = sqlite3_errmsg(db);

    return tool_fail(
        "cannot answer: %s%s", message,
        strncmp(message, "no such ", 8) == 0 ? " (probing-query --tables lists the names)" : "");
}

/* All statements of the text; CSV and JSON have room for one result. */
static int run_sql(sqlite3 *db, const char *sql, const char *format) {
    struct rows *rows;
    unsigned results = 0;
    uint64_t count = 0;
    int rc = SQLITE_OK;

    if (rows_open(&rows, format, stdout) < 0)
        return tool_fail("cannot print: no memory");
    while (*sql) {
        sqlite3_stmt *st = NULL;
        if ((rc = sqlite3_prepare_v2(db, sql, -1, &st, &sql)) != SQLITE_OK)
            break;
        if (!st) /* a comment, or blanks at the end */
            continue;
        if (sqlite3_column_count(st) == 0) {
            rc = sqlite3_step(st);
        } else if (results && strcmp(format, "table") != 0) {
            sqlite3_finalize(st);
            rows_close(rows);
            return tool_usage(
                "%s has room for one result, and this is the second statement that has "
                "one",
                format);
        } else {
            if (results++)
                fputc('\n', stdout);
            rc = print_result(st, rows, &count);
        }
        if (rc != SQLITE_DONE) {
            int code = sql_failed(db);
            sqlite3_finalize(st);
            rows_close(rows);
            return code;
        }
        rc = SQLITE_OK;
        sqlite3_finalize(st);
    }
    rows_close(rows);
    if (rc != SQLITE_OK)
        return sql_failed(db);
    if (results && !count)
        tool_say("no rows");
    return TOOL_OK;
}

/* All of standard input; NULL when it cannot be read. */
static char *read_stdin(void) {
    size_t n = 0, room = 4096;
    char *text = malloc(room);

    while (text) {
        n += fread(text + n, 1, room - n - 1, stdin);
        if (n < room - 1)
            break;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[n] = '\0';
    return text;
}

/*
 * SQL may begin with a comment, "-- why", which getopt would take for an option: whatever has a blank or a line's end in it, and no
 * '=' before that, is none. A blank in front hides it. -ENOMEM
 */
static int hide_comments(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *text;
        if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2] ||
            !isspace((unsigned char)argv[i][strcspn(argv[i], "= \t\r\n")]))
            continue;
        if (asprintf(&text, " %s", argv[i]) < 0)
            return -ENOMEM;
        argv[i] = text; /* for as long as the program runs */
    }
    return 0;
}

int cmd_query(int argc, char **argv) {
    static const struct option options[] = {
        {"format", required_argument, NULL, 'f'}, {"csv", no_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},         {"tables", no_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    const char *format = "table", *sql;
    char *text = NULL;
    struct rows *probe;
    sqlite3 *db;
    int c, rc, code, tables = 0;

    if (hide_comments(argc, argv) < 0)
        return tool_fail("cannot read the SQL: no memory");
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":f:h", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            format = optarg;
            break;
        case 'c':
            format = "csv";
            break;
        case 'j':
            format = "json";
            break;
        case 't':
            tables = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return TOOL_OK;
        default:
            return tool_bad_option(argv);
        }
    }
    rc = rows_open(&probe, format, stdout);
    if (rc == -EINVAL)
        return tool_usage("no format '%s': choose %s", format, ROWS_FORMATS);
    if (rc == 0)
        rows_close(probe);
    argv += optind;
    argc -= optind;
    if (argc == 0)
        return tool_usage("a database or a trace is needed");
    if (argc == 1 && !tables)
        return tool_usage("no SQL given: probing-query %s \"SELECT ...\"", argv[0]);
    sql = tables ? tables_sql : argv[--argc];
    if (!tables && strcmp(sql, "-") == 0) {
        if (!(sql = text = read_stdin()))
            return tool_fail("cannot read the SQL from standard input: no memory");
    }
    const char *p = sql;
    while (isspace((unsigned char)*p) || *p == ';')
        p++;
    if (!*p) {
        code = tool_usage("the SQL is empty");
    } else {
        code = db_open(&db, argv, argc);
        if (db) {
            if (!tables && !strcasestr(sql, "run"))
                db_note_runs(db, "column run of trace and view runs tell them apart");
            rc = run_sql(db, sql, format);
            sqlite3_close(db);
            if (rc != TOOL_OK)
                code = rc;
        }
    }
    free(text);
    return code;
}
