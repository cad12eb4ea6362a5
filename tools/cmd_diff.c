/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_diff.c - `probing diff`: what differs between two runs, or two ranks, sorted by what it costs. */
#include <stdlib.h>
#include <string.h>

#include "db_notes.h"
#include "diff.h"
#include "flame_diff.h"
#include "new_file.h"
#include "open_db.h"
#include "options.h"
#include "question_run.h"
#include "running.h"

static const char help[] =
    "usage: probing diff [OPTION...] A B                     two recordings\n"
    "       probing diff [OPTION...] --ranks R1,R2 A [B]     two ranks of one, or of two\n"
    "       probing diff [OPTION...] --runs RUN1,RUN2 A [B]  two runs (view runs lists them)\n"
    "\n"
    "What differs between two: steps, functions, modules, collectives, threads, memory, settings and\n"
    "versions, what costs most first. A and B are databases, traces, directories of traces or process\n"
    "ids. Both are cut into 16 parts; what differs by less than several times what the parts themselves\n"
    "vary by is not shown.\n"
    "\n"
    "  -o, --output FILE    a flame graph of both as FILE.svg instead (probing flamegraph --diff does\n"
    "                       more)\n"
    "      --answer         the sentence alone\n"
    "      --format FORMAT  table (default), box, markdown, csv, json or jsonl\n"
    "      --csv, --json, --jsonl, --markdown, --box   the same\n"
    "      --timeout S      give up after S seconds\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Without steps, times are those of a process as a whole. `probing ask diff --sql` prints the SQL.\n"
    "Exit code: 0; 1 a damaged trace was read in part, or one side is empty; 2 usage; 3 nothing could be\n"
    "read.\n"
    "\n"
    "  probing diff before.db after.db\n"
    "  probing diff --ranks 0,3 traces/\n";

/* Splits "A,B" into its two sides. It is cut in place, which is allowed, as it is one of the program's arguments. */
static int split(const char *text, const char **a, const char **b) {
    char *comma = strchr(text, ',');

    if (!comma || comma == text || !comma[1] || strchr(comma + 1, ','))
        return -1;
    *comma = '\0';
    *a = text;
    *b = comma + 1;
    return 0;
}

static int take_ranks(const char *name, const char *value, void *into) {
    struct diff_side *sides = into;
    double n;

    if (split(value, &sides[0].rank, &sides[1].rank) < 0 ||
        tool_number(sides[0].rank, 0, 1e9, &n) < 0 || tool_number(sides[1].rank, 0, 1e9, &n) < 0)
        return tool_usage("--%s takes two numbers, as in 0,3", name);
    return TOOL_OK;
}

static int take_runs(const char *name, const char *value, void *into) {
    struct diff_side *sides = into;

    if (split(value, &sides[0].run, &sides[1].run) < 0)
        return tool_usage("--%s takes the names of two, A,B (view runs lists them)", name);
    return TOOL_OK;
}

static int draw(const struct diff_side sides[2], char **paths, int n, const char *output) {
    struct flame_diff d = {.fold.pid = -1, .fold.rank = -1, .output = output};
    static char names[2][300];

    for (int i = 0; i < 2; i++) {
        const char *rank = sides[i].rank, *run = sides[i].run;
        snprintf(names[i], sizeof names[i], "%s%s%s%s%s", paths[i < n ? i : 0], run ? " run " : "",
                 run ? run : "", rank ? " rank " : "", rank ? rank : "");
        d.side[i].db = sides[i].db;
        d.side[i].name = names[i];
        d.side[i].run = run;
        d.side[i].rank = rank ? strtoll(rank, NULL, 10) : -1;
    }
    return flame_diff_draw(&d);
}

int cmd_diff(int argc, char **argv) {
    struct question_run r = {.run = {.format = "table"}};
    struct diff_side sides[2] = {{0}};
    const char *output = NULL;
    const struct tool_option options[] = {OPTION_CALL("ranks", 0, take_ranks, sides),
                                          OPTION_CALL("runs", 0, take_runs, sides),
                                          OPTION_TEXT("output", 'o', &output),
                                          OPTION_FLAG("answer", 0, &r.answer_only),
                                          SQL_RUN_OPTIONS(&r.run),
                                          {0}};
    int code = tool_options(argc, argv, help, options), damaged = TOOL_OK;

    if (code != TOOL_OK)
        return code;
    argv += optind;
    argc -= optind;
    if (argc < 1 || argc > 2 || (argc == 1 && !sides[0].rank && !sides[0].run))
        return tool_usage("two recordings are needed, or one and --ranks or --runs");
    if (output && (code = new_file_allowed(output, OUTPUT_PICTURE, argv, argc)) != TOOL_OK)
        return code;
    for (int i = 0; i < argc && code != TOOL_FAILED && code != TOOL_USAGE; i++) {
        code = db_open(&sides[i].db, argv + i, 1, 0);
        damaged = code == TOOL_PARTIAL ? code : damaged;
        if (sides[i].db && !sides[i].run)
            db_note_runs(sides[i].db, "--runs A,B takes one of them on each side");
        if (sides[i].db)
            running_note(sides[i].db);
    }
    if (sides[0].db && argc == 1)
        sides[1].db = sides[0].db;
    if (sides[0].db && sides[1].db && output) {
        code = draw(sides, argv, argc, output);
    } else if (sides[0].db && sides[1].db && (code = diff_gather(&r.run.db, sides)) == TOOL_OK) {
        code = question_run(&r, question_find("diff"), 0);
        question_run_end(&r);
        sqlite3_close(r.run.db);
    }
    sqlite3_close(sides[0].db);
    if (argc == 2)
        sqlite3_close(sides[1].db);
    return code != TOOL_OK ? code : damaged;
}
