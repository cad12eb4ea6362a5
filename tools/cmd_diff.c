/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_diff.c - `probing diff`: what differs between two runs, or two ranks, sorted by what it costs. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "diff.h"
#include "open_db.h"
#include "question_run.h"

static const char help[] =
    "usage: probing diff [OPTION...] A B                     two recordings\n"
    "       probing diff [OPTION...] --ranks R1,R2 A [B]     two ranks of one, or of two\n"
    "       probing diff [OPTION...] --runs RUN1,RUN2 A [B]  two runs (view runs lists them)\n"
    "\n"
    "What differs between two: steps, functions, modules, collectives, memory, settings and versions, what\n"
    "costs most first. A and B are databases, traces, directories of traces or process ids. Both are cut into\n"
    "16 parts; what differs by less than three times what the parts themselves vary by is not shown.\n"
    "\n"
    "      --answer         the sentence alone\n"
    "      --format FORMAT  table (default), box, markdown, csv or json\n"
    "      --csv, --json, --markdown, --box   the same\n"
    "      --timeout S      give up after S seconds\n"
    "  -h, --help           this text\n"
    "\n"
    "Without steps, times are those of a process as a whole. `probing ask diff --sql` prints what is asked.\n"
    "Exit code: 0; 1 a damaged trace was read in part, or one side is empty; 2 usage; 3 nothing could be read.\n"
    "\n"
    "  probing diff before.db after.db\n"
    "  probing diff --ranks 0,3 traces/\n";

/* "A,B" in place: into the two sides. */
static int split(char *text, const char **a, const char **b) {
    char *comma = strchr(text, ',');

    if (!comma || comma == text || !comma[1] || strchr(comma + 1, ','))
        return -1;
    *comma = '\0';
    *a = text;
    *b = comma + 1;
    return 0;
}

static int parse(int argc, char **argv, struct question_run *r, struct diff_side sides[2],
                 int *done) {
    enum { RANKS = 256, RUNS, ANSWER };
    static const struct option options[] = {
        {"ranks", required_argument, NULL, RANKS}, {"runs", required_argument, NULL, RUNS},
        {"answer", no_argument, NULL, ANSWER},     SQL_RUN_OPTIONS,
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    double n;
    int c, code;

    *done = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case RANKS:
            if (split(optarg, &sides[0].rank, &sides[1].rank) < 0 ||
                tool_number(sides[0].rank, 0, 1e9, &n) < 0 ||
                tool_number(sides[1].rank, 0, 1e9, &n) < 0)
                return tool_usage("--ranks takes two numbers, as in 0,3");
            break;
        case RUNS:
            if (split(optarg, &sides[0].run, &sides[1].run) < 0)
                return tool_usage("--runs takes the names of two, A,B (view runs lists them)");
            break;
        case ANSWER:
            r->answer_only = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return TOOL_OK;
        default:
            if ((code = sql_run_option(&r->run, c, optarg, argv)) != TOOL_OK)
                return code;
        }
    }
    *done = 0;
    return TOOL_OK;
}

int cmd_diff(int argc, char **argv) {
    struct question_run r = {.run = {.format = "table"}};
    struct diff_side sides[2] = {{0}};
    int done, code = parse(argc, argv, &r, sides, &done), damaged = TOOL_OK;

    if (code != TOOL_OK || done)
        return code;
    argv += optind;
    argc -= optind;
    if (argc < 1 || argc > 2 || (argc == 1 && !sides[0].rank && !sides[0].run))
        return tool_usage("two recordings are needed, or one and --ranks or --runs");
    for (int i = 0; i < argc && code != TOOL_FAILED && code != TOOL_USAGE; i++) {
        code = db_open(&sides[i].db, argv + i, 1, 0);
        damaged = code == TOOL_PARTIAL ? code : damaged;
        if (sides[i].db && !sides[i].run)
            db_note_runs(sides[i].db, "--runs A,B takes one of them on each side");
    }
    if (sides[0].db && argc == 1)
        sides[1].db = sides[0].db;
    if (sides[0].db && sides[1].db && (code = diff_gather(&r.run.db, sides)) == TOOL_OK) {
        code = question_run(&r, question_find("diff"), 0);
        question_run_end(&r);
        sqlite3_close(r.run.db);
    }
    sqlite3_close(sides[0].db);
    if (argc == 2)
        sqlite3_close(sides[1].db);
    return code != TOOL_OK ? code : damaged;
}
