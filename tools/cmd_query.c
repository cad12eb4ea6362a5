/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_query.c - probing-query: SQL on a database, or straight on traces. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db_notes.h"
#include "live_target.h"
#include "open_db.h"
#include "options.h"
#include "query_shell.h"
#include "rows.h"
#include "sql_run.h"

static const char help[] =
    "usage: probing-query [OPTION...] DB|TRACE... [\"SQL\"]\n"
    "       probing-query --tables DB|TRACE...\n"
    "\n"
    "Answers SQL from a database made by probing-convert, or from traces (they are converted first, and\n"
    "the database is kept in the cache folder for the next question). Without SQL it is a prompt; SQL\n"
    "given as - is read from standard input. Besides SQLite's own words: now(), INTERVAL '5 min',\n"
    "date_trunc, hour, median, percentile, stddev, SHOW TABLES, DESCRIBE t, information_schema.tables\n"
    "(probing-query(1) has them all). In sqlite3, .load PREFIX/lib/probing/probing has the functions; an\n"
    "interval is written with parentheses there: now() - interval('5 min').\n"
    "\n"
    "  -f, --file FILE      read the SQL from FILE\n"
    "      --format FORMAT  table (default), box, markdown, csv, json, jsonl or arrow\n"
    "      --csv, --json, --jsonl, --markdown, --box   the same\n"
    "      --last TIME, --from WHEN, --to WHEN\n"
    "                       of traces: only the last 5min (s, min, h, d), only from then on, until then;\n"
    "                       what lies outside is not read (probing-convert --help says how to write WHEN)\n"
    "      --no-cache       convert traces anew, and keep nothing\n"
    "      --timeout S      give up a text of SQL after S seconds\n"
    "      --restricted     read what was named and nothing else: no ATTACH, no other file in the SQL\n"
    "      --tables         list the names that can be asked, with their columns\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Exit code: 0; 1 when a damaged trace was read in part; 2 usage; 3 when nothing could be read or\n"
    "the SQL is wrong.\n"
    "\n"
    "  probing-query out.db \"SELECT func, file, seconds FROM hot_functions LIMIT 10\"\n"
    "  probing-query --csv trace.zst \"SELECT timestamp, rss FROM memory_usage\" > rss.csv\n";

/* One list for people: which names there are and what they hold. */
static const char tables_sql[] =
    "SELECT m.name, m.type, (SELECT group_concat(name, ', ') FROM pragma_table_info(m.name)) AS "
    "columns"
    " FROM (SELECT * FROM sqlite_master WHERE " QUERY_SHOWN ") m ORDER BY m.type = 'table', m.name";

/* All of `f`; NULL when there is no memory. *bytes: how many. */
static char *read_all(FILE *f, size_t *bytes) {
    size_t n = 0, size = 4096;
    char *text = malloc(size);

    while (text) {
        n += fread(text + n, 1, size - n - 1, f);
        if (n < size - 1)
            break;
        char *more = realloc(text, size *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[n] = '\0';
    *bytes = n;
    return text;
}

/* Reads the SQL from the file at `path`, "-" being standard input. Returns TOOL_OK with *out to be freed, or reports an error and returns the exit code. */
static int read_sql(const char *path, char **out) {
    int is_stdin = strcmp(path, "-") == 0, code = TOOL_OK;
    size_t bytes;
    FILE *f = is_stdin ? stdin : fopen(path, "re");

    if (!f)
        return tool_fail("cannot read %s: %s (a format is named by --format)", path,
                         strerror(errno));
    if (!(*out = read_all(f, &bytes)) || ferror(f))
        code = tool_fail("cannot read %s: %s", is_stdin ? "standard input" : path, strerror(errno));
    else if (strlen(*out) != bytes) /* what follows the NUL would not be asked, silently */
        code = tool_fail("cannot read %s: it has a NUL byte (SQL is a text in UTF-8)",
                         is_stdin ? "standard input" : path);
    if (code != TOOL_OK) {
        free(*out);
        *out = NULL;
    }
    if (!is_stdin)
        fclose(f);
    return code;
}

/* Returns whether the SQL asks nothing: it has only blanks, semicolons and comments. */
static int is_empty(const char *sql) {
    for (;;) {
        sql += strspn(sql, " \t\r\n\f;");
        if (strncmp(sql, "--", 2) == 0) {
            sql += strcspn(sql, "\n");
        } else if (strncmp(sql, "/*", 2) == 0) {
            const char *end = strstr(sql + 2, "*/");
            sql = end ? end + 2 : "";
        } else {
            return !*sql;
        }
    }
}

/*
 * SQL may begin with a comment, "-- why", which getopt would take for an option. An argument with a blank or a line's end, and no
 * '=' before that, is no option: a blank is put in front of it, so that getopt leaves it alone. Returns 0 or -ENOMEM.
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

/* Returns whether the SQL may need the schema `python`: it has that word, or asks which schemas there are. */
static int names_python(const char *sql) {
    return strcasestr(sql, "python") || strcasestr(sql, "schemata") || strcasestr(sql, "schemas") ||
           strcasestr(sql, "database");
}

/* Returns whether one of the arguments that should be files is SQL instead: it begins as SQL does, and there is no such file. */
static int find_sql(char *const words[], int n) {
    static const char *const begin[] = {"select ", "with ",    "show ",   "describe ",
                                        "desc ",   "explain ", "pragma ", "values",
                                        "select*", "select\n", "--"};

    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof begin / sizeof *begin; k++)
            if (strncasecmp(words[i] + strspn(words[i], " \t\r\n("), begin[k], strlen(begin[k])) ==
                    0 &&
                access(words[i], F_OK) != 0)
                return 1;
    return 0;
}

/* Where the rows of a view come from, for views that are empty in many recordings. */
static const struct {
    const char *view, *from;
} sources[] = {
    {"gpu_metrics", "no GPU was seen (NVML: libnvidia-ml.so.1)"},
    {"memory_allocations", "this version records no allocations of the heap; `probing ask memory` "
                           "tells where memory grows"},
    {"training_logs",
     "training_logs is made of recorded variables: probing-record --exprs loss@train"},
    {"variables", "variables are recorded by probing-record --exprs loss@train"},
    {"comm_metrics", "comm_metrics are the collectives and messages of torch.distributed"},
    {"torch_trace", "torch_trace has the calls of PyTorch's modules (--torch)"},
    {"torch_modules", "torch_modules is made of the calls of PyTorch's modules (--torch)"},
    {"steps", "steps are those of PyTorch's optimizers (--torch) or of probing.step()"},
    {"spans", "spans are those of probing.span()"},
};

/* Prints that there are no rows and, if a view that the SQL names is empty, what its rows would be made of. */
static void explain_nothing(sqlite3 *db, const char *sql) {
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        sqlite3_stmt *st = NULL;
        char *probe = NULL;
        int empty = strcasestr(sql, sources[i].view) &&
                    (probe = sqlite3_mprintf("SELECT 1 FROM %s LIMIT 1", sources[i].view)) &&
                    sqlite3_prepare_v2(db, probe, -1, &st, NULL) == SQLITE_OK &&
                    sqlite3_step(st) == SQLITE_DONE;
        sqlite3_finalize(st);
        sqlite3_free(probe);
        if (empty) {
            tool_say("no rows: %s", sources[i].from);
            return;
        }
    }
    tool_say("no rows");
}

struct query {
    struct sql_run run;
    const char *file;
    int tables, flags, restricted;
    struct db_part part;
};

static int take_file(const char *name, const char *value, void *into) {
    struct query *q = into;

    (void)name;
    if (rows_is_format(value) && access(value, F_OK) != 0)
        q->run.format = value; /* what -f was for until version 0.2 */
    else
        q->file = value;
    return TOOL_OK;
}

static int parse(int argc, char **argv, struct query *q) {
    const struct tool_option options[] = {OPTION_CALL("file", 'f', take_file, q),
                                          SQL_RUN_OPTIONS(&q->run),
                                          OPTION_BITS("no-cache", 0, &q->flags, DB_NO_CACHE),
                                          OPTION_CALL("from", 0, option_time, &q->part.since),
                                          OPTION_CALL("to", 0, option_time, &q->part.until),
                                          OPTION_CALL("last", 0, option_last, &q->part.since),
                                          OPTION_FLAG("tables", 0, &q->tables),
                                          OPTION_FLAG("restricted", 0, &q->restricted),
                                          {0}};
    return tool_options(argc, argv, help, options);
}

int cmd_query(int argc, char **argv) {
    struct query q = {.run = {.format = "table", .out = stdout}};
    const char *sql = NULL;
    char *text = NULL;
    struct sql_run *run = &q.run;
    int code;

    if (hide_comments(argc, argv) < 0)
        return tool_fail("cannot read the SQL: no memory");
    if ((code = parse(argc, argv, &q)) != TOOL_OK)
        return code;
    argv += optind;
    argc -= optind;
    if (argc == 0)
        return tool_usage("a database or a trace is needed");
    if (find_sql(argv, argc - (argc > 1)))
        return tool_usage(argc > 1
                              ? "the SQL comes last, and is one: probing query DB|TRACE... \"SQL\""
                              : "the SQL is of what? probing query DB|TRACE... \"SQL\"");
    if (q.tables) {
        sql = tables_sql;
    } else if (q.file) {
        code = read_sql(q.file, &text);
    } else if (argc > 1 && (q.restricted || access(argv[argc - 1], F_OK) != 0)) {
        sql = argv[--argc];
        if (strcmp(sql, "-") == 0)
            code = read_sql("-", &text);
    } else if (!isatty(STDIN_FILENO)) {
        code = read_sql("-", &text);
    }
    sql = text ? text : sql;
    if (code == TOOL_OK && sql && is_empty(sql))
        code = tool_usage(text && !q.file
                              ? "standard input has no SQL: give it as the last word, or -f FILE"
                              : "the SQL is empty");
    q.part.sql = q.tables ? NULL : sql;
    if (code == TOOL_OK)
        code = db_open_part(&run->db, argv, argc,
                            q.flags | (sql && !names_python(sql) ? DB_NO_PYTHON : 0), &q.part);
    if (run->db) {
        if (sql && !q.tables && !strcasestr(sql, "run"))
            db_note_runs(run->db, "column run of trace and view runs tell them apart");
        int rc = sql ? live_backtrace(run->db, sql) : TOOL_OK;
        query_allow(run->db, q.restricted);
        if (rc == TOOL_OK)
            rc = sql ? sql_run(run, sql) : query_shell(run, argv, argc, q.restricted);
        if (sql && rc == TOOL_OK && run->results && !run->rows)
            explain_nothing(run->db, sql);
        sqlite3_close(run->db); /* the prompt may have opened another */
        code = rc != TOOL_OK ? rc : code;
    }
    free(text);
    return code;
}
