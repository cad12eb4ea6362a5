/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ask.c - `probing ask`: answers questions that come with Probing, by their name (question.h). */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "db_notes.h"
#include "diff.h"
#include "open_db.h"
#include "options.h"
#include "question_run.h"
#include "rows.h"
#include "running.h"
#include "sql_run.h"

static const char help[] =
    "usage: probing ask                          the questions\n"
    "       probing ask NAME [OPTION...] DB|TRACE...|PID\n"
    "\n"
    "Answers a question that comes with Probing: a sentence first, then what it rests on. `all` asks\n"
    "every question that the recording can answer.\n"
    "\n"
    "      --step N         the step that is asked about (step)\n"
    "      --rank N         only this rank (step)\n"
    "      --a RUN, --b RUN the runs that are compared (diff); view runs lists them\n"
    "      --answer         the sentence alone\n"
    "      --sql            print the SQL and ask nothing\n"
    "      --format FORMAT  table (default), box, markdown, csv, json or jsonl\n"
    "      --csv, --json, --jsonl, --markdown, --box   the same\n"
    "      --timeout S      give up after S seconds\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "With --json the result is an array of objects {question, title, rows}.\n"
    "Exit code: 0; 1 a damaged trace was read in part, or there is nothing to answer from; 2 usage; 3\n"
    "nothing could be read.\n"
    "\n"
    "  probing ask straggler traces/\n";

struct ask {
    struct question_run q;
    struct sql_param params[4];
    int print_sql;
};

static int list(void) {
    const struct question *q;

    for (unsigned i = 0; (q = question_at(i)); i++)
        printf("  %-10s %s\n", q->name, q->title);
    printf("\nprobing ask NAME DB|TRACE...|PID   (--sql shows what is asked)\n");
    return TOOL_OK;
}

/* Prints SQL with the values of its parameters in their place, so that `probing query` can run what is printed. */
static void put_sql(const struct ask *a, const char *sql) {
    for (char quote = 0; *sql; sql++) {
        const struct sql_param *p = a->params, *end = p + sizeof a->params / sizeof *a->params;
        size_t n = quote ? 0 : strspn(sql + 1, "abcdefghijklmnopqrstuvwxyz");
        while (*sql == ':' && p < end && (strlen(p->name) != n + 1 || strncmp(sql, p->name, n + 1)))
            p++;
        if (*sql == ':' && n && p < end) {
            char *text = p->is_number ? NULL : sqlite3_mprintf("%Q", p->value);
            fputs(text ? text : p->value ? p->value : "NULL", stdout);
            sqlite3_free(text);
            sql += n;
            continue;
        }
        if (quote ? *sql == quote : strchr("'\"", *sql) != NULL)
            quote = quote ? 0 : *sql;
        else if (!quote && strncmp(sql, "--", 2) == 0)
            quote = '\n';
        putchar(*sql);
    }
}

static int print_sql(const struct ask *a, const struct question *q) {
    printf("-- %s\n", q->title);
    if (strcmp(q->name, "diff") == 0)
        printf("%s\n", diff_side_sql());
    for (unsigned i = 0; i < q->nparts; i++) {
        if (q->part[i].title)
            printf("\n-- %s\n", q->part[i].title);
        put_sql(a, q->part[i].sql);
    }
    return TOOL_OK;
}

/* Compares two runs of the database: the rows of both are first gathered in a separate database, which is then asked. */
static int ask_diff(struct ask *a, const struct question *q, int quiet) {
    struct diff_side sides[2];
    struct question_run side_by_side = a->q;
    int code;

    for (int i = 0; i < 2; i++)
        sides[i] = (struct diff_side){.db = a->q.run.db, .run = a->params[2 + i].value};
    if ((code = diff_runs(sides, quiet)) != TOOL_OK ||
        (code = diff_gather(&side_by_side.run.db, sides)) != TOOL_OK)
        return code;
    code = question_run(&side_by_side, q, quiet);
    a->q.pieces = side_by_side.pieces;
    sqlite3_close(side_by_side.run.db);
    return code;
}

static int ask_one(struct ask *a, const struct question *q, int quiet) {
    return strcmp(q->name, "diff") == 0 ? ask_diff(a, q, quiet) : question_run(&a->q, q, quiet);
}

static int ask_all(struct ask *a, const struct question *q) {
    int code = TOOL_PARTIAL, any = 0;

    if (q)
        code = ask_one(a, q, 0);
    for (unsigned i = 0; !q && code != TOOL_FAILED && question_at(i); i++) {
        code = ask_one(a, question_at(i), 1);
        any |= code == TOOL_OK;
    }
    question_run_end(&a->q);
    return !q && any && code != TOOL_FAILED ? TOOL_OK : code;
}

static int number(const char *name, const char *value, void *into) {
    struct sql_param *p = into;
    double n;

    if (tool_number(value, 0, 1e15, &n) < 0 || n != (double)(long long)n)
        return tool_usage("'%s' is no number of a %s", value, name);
    p->value = value;
    p->is_number = 1;
    return TOOL_OK;
}

static int parse(int argc, char **argv, struct ask *a) {
    const struct tool_option options[] = {OPTION_CALL("step", 0, number, &a->params[0]),
                                          OPTION_CALL("rank", 0, number, &a->params[1]),
                                          OPTION_TEXT("a", 0, &a->params[2].value),
                                          OPTION_TEXT("b", 0, &a->params[3].value),
                                          OPTION_FLAG("answer", 0, &a->q.answer_only),
                                          OPTION_FLAG("sql", 0, &a->print_sql),
                                          SQL_RUN_OPTIONS(&a->q.run),
                                          {0}};
    return tool_options(argc, argv, help, options);
}

int cmd_ask(int argc, char **argv) {
    struct ask a = {
        .q.run = {.format = "table"},
        .params = {{":step", NULL, 0}, {":rank", NULL, 0}, {":a", NULL, 0}, {":b", NULL, 0}}};
    int code = parse(argc, argv, &a);

    if (code != TOOL_OK)
        return code;
    argv += optind;
    argc -= optind;
    if (argc == 0)
        return list();
    const struct question *q = question_find(argv[0]);
    if (!q && argc > 1 && question_find(argv[argc - 1]))
        return tool_usage("the question comes first: probing ask %s DB|TRACE...|PID",
                          argv[argc - 1]);
    if (!q && strcmp(argv[0], "all") != 0)
        return tool_usage("no question '%s' (probing ask lists them)", argv[0]);
    if (a.print_sql && q)
        return print_sql(&a, q);
    if (argc == 1)
        return tool_usage("of what? probing ask %s DB|TRACE...|PID", argv[0]);
    argv++;
    argc--;
    code = db_open(&a.q.run.db, argv, argc, DB_NO_PYTHON);
    if (!a.q.run.db)
        return code;
    a.q.run.params = a.params;
    a.q.run.nparams = sizeof a.params / sizeof *a.params;
    sqlite3_exec(a.q.run.db, "PRAGMA query_only = OFF", NULL, NULL,
                 NULL); /* questions make temporary tables; the file stays read-only */
    if (!q || strcmp(q->name, "diff") != 0)
        db_note_runs(a.q.run.db, "give the traces of one for its own answer, or ask diff");
    db_note_ranks(a.q.run.db);
    db_note_clocks(a.q.run.db, argv[0]);
    running_note(a.q.run.db);
    int rc = ask_all(&a, q);
    sqlite3_close(a.q.run.db);
    return rc != TOOL_OK ? rc : code;
}
