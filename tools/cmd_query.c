/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_query.c - probing-query: SQL on a database, or straight on traces. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "live_target.h"
#include "open_db.h"
#include "query_shell.h"
#include "rows.h"
#include "sql_guard.h"
#include "sql_run.h"

static const char help[] =
    "usage: probing-query [OPTION...] DB|TRACE... [\"SQL\"]\n"
    "       probing-query --tables DB|TRACE...\n"
    "\n"
    "Answers SQL from a database made by probing-convert, or from traces (they are converted first, and\n"
    "the database is kept in the cache folder for the next question). Without SQL it is a prompt; SQL\n"
    "given as - is read from standard input. Besides SQLite's own words: now(), INTERVAL '5 min',\n"
    "date_trunc, hour, median, percentile, stddev, SHOW TABLES, DESCRIBE t, information_schema.tables\n"
    "(probing-query(1) has them all).\n"
    "\n"
    "  -f, --file FILE      read the SQL from FILE\n"
    "      --format FORMAT  table (default), box, markdown, csv or json\n"
    "      --csv, --json, --markdown, --box   the same\n"
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
    " FROM sqlite_master m WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"
    " ORDER BY m.type = 'table', m.name";

/* All of `f`; NULL when there is no memory. */
static char *read_all(FILE *f) {
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
    return text;
}

/* The SQL in the file at `path`, "-" standard input. TOOL_OK with *out (malloc), or the exit code, said. */
static int read_sql(const char *path, char **out) {
    int is_stdin = strcmp(path, "-") == 0, code = TOOL_OK;
    FILE *f = is_stdin ? stdin : fopen(path, "re");

    if (!f)
        return tool_fail("cannot read %s: %s (a format is named by --format)", path,
                         strerror(errno));
    if (!(*out = read_all(f)) || ferror(f)) {
        code = tool_fail("cannot read %s: %s", is_stdin ? "standard input" : path, strerror(errno));
        free(*out);
        *out = NULL;
    }
    if (!is_stdin)
        fclose(f);
    return code;
}

/* Whether anything is asked: there is more than blanks, semicolons and comments. */
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

/* Names that look like answers and are empty for a reason that can be said. */
static void explain_nothing(const char *sql) {
    if (strcasestr(sql, "memory_allocations"))
        tool_say(
            "no rows: memory_allocations is for a heap recording, which this version cannot make yet");
    else
        tool_say("no rows");
}

struct query {
    struct sql_run run;
    const char *file;
    int tables, flags, restricted;
    struct db_part part;
};

/* TOOL_OK, or the exit code of `--help` and of wrong options; *done: there is nothing more to do. */
static int parse(int argc, char **argv, struct query *q, int *done) {
    enum { TABLES = 256, NO_CACHE, RESTRICTED, FROM, TO, LAST };
    static const struct option options[] = {
        {"file", required_argument, NULL, 'f'},    SQL_RUN_OPTIONS,
        {"no-cache", no_argument, NULL, NO_CACHE}, {"from", required_argument, NULL, FROM},
        {"to", required_argument, NULL, TO},       {"last", required_argument, NULL, LAST},
        {"tables", no_argument, NULL, TABLES},     {"restricted", no_argument, NULL, RESTRICTED},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    int c, code;

    *done = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":f:h", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            if (rows_is_format(optarg) && access(optarg, F_OK) != 0)
                q->run.format = optarg; /* what -f was for until version 0.2 */
            else
                q->file = optarg;
            break;
        case FROM:
        case TO:
            if (when_parse(optarg, c == FROM ? &q->part.since : &q->part.until) != 0)
                return tool_usage(
                    "--%s %s: write a time as 2026-11-22T13:05:00, as seconds since the epoch, "
                    "as +90s after the first record or as -5min before the last",
                    c == FROM ? "from" : "to", optarg);
            break;
        case LAST:
            q->part.since.from = WHEN_BEFORE_LAST;
            if (when_duration(optarg, &q->part.since.ns) != 0)
                return tool_usage("--last %s: write a length of time as 90s, 5min or 2h", optarg);
            break;
        case NO_CACHE:
            q->flags |= DB_NO_CACHE;
            break;
        case TABLES:
            q->tables = 1;
            break;
        case RESTRICTED:
            q->restricted = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return TOOL_OK;
        default:
            if ((code = sql_run_option(&q->run, c, optarg, argv)) != TOOL_OK)
                return code;
        }
    }
    *done = 0;
    return TOOL_OK;
}

int cmd_query(int argc, char **argv) {
    struct query q = {.run = {.format = "table", .out = stdout}};
    const char *sql = NULL;
    char *text = NULL;
    struct sql_run *run = &q.run;
    int done, code;

    if (hide_comments(argc, argv) < 0)
        return tool_fail("cannot read the SQL: no memory");
    if ((code = parse(argc, argv, &q, &done)) != TOOL_OK || done)
        return code;
    argv += optind;
    argc -= optind;
    if (argc == 0)
        return tool_usage("a database or a trace is needed");
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
        code = tool_usage("the SQL is empty");
    if (code == TOOL_OK)
        code = db_open_part(&run->db, argv, argc, q.flags, &q.part);
    if (run->db) {
        if (sql && !q.tables && !strcasestr(sql, "run"))
            db_note_runs(run->db, "column run of trace and view runs tell them apart");
        int rc = sql && live_pid() && strcasestr(sql, "python") ? live_backtrace(run->db) : TOOL_OK;
        if (q.restricted)
            sql_guard(run->db);
        if (rc == TOOL_OK)
            rc = sql ? sql_run(run, sql) : query_shell(run, argv, argc);
        if (sql && rc == TOOL_OK && run->results && !run->rows)
            explain_nothing(sql);
        sqlite3_close(run->db); /* the prompt may have opened another */
        code = rc != TOOL_OK ? rc : code;
    }
    free(text);
    return code;
}
