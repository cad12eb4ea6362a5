/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - `probing`: one program, one row per command.
 *
 *     probing record ...     the same as     probing-record ...     (the program looks at argv[0])
 *     probing -t PID ...     GDB commands on a live process (cmd_target.c)
 */
#include <malloc.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../converter/cut_short.h"
#include "common.h"
#include "live_target.h"
#include "target.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"record", cmd_record, "run a program and record it into a trace"},
    {"convert", cmd_convert, "turn traces into one SQLite database"},
    {"query", cmd_query, "ask a database, or traces, in SQL"},
    {"ask", cmd_ask, "answer a common question: where does the time go, who is the straggler, ..."},
    {"diff", cmd_diff, "what differs between two runs or ranks, what costs most first"},
    {"stacks", cmd_stacks, "what every rank did at one time, merged into one tree"},
    {"flamegraph", cmd_flamegraph, "draw where the time goes (SVG)"},
    {"top", cmd_top,
     "what a recording does now: functions, threads, modules, ranks, drawn again and again"},
    {"report", cmd_report,
     "one page for a browser: steps, ranks, collectives, stacks, memory (HTML)"},
    {"serve", cmd_serve, "answer over HTTP: a page, SQL, and commands on processes from elsewhere"},
    {"cluster", cmd_cluster, "one question to the servers of many machines at once"},
    {"export", cmd_export,
     "write traces for other viewers and engines: Perfetto, Chrome, pprof, CSV, Parquet, ..."},
    {"pack", cmd_pack, "make traces ready to be shipped: complete, joined, small"},
    {"python-install", cmd_python_install,
     "make `import probing` and PROBING=1 work with a Python"},
    {"list", cmd_list, "show what is being recorded now"},
    {"backtrace", cmd_backtrace, "the stacks of a core file (of a process: -t PID)"},
};
#define NCOMMANDS (sizeof commands / sizeof *commands)

/* The commands on a live process: `probing -t PID NAME` (cmd_target.c). */
static const char *const target_commands[] = {"inject", "eval",   "repl", "watch",
                                              "config", "status", "stop", "memory"};

static int is_target_word(const char *name) {
    for (size_t i = 0; i < sizeof target_commands / sizeof *target_commands; i++) {
        if (strcmp(name, target_commands[i]) == 0)
            return 1;
    }
    return 0;
}

static void help(FILE *f) {
    fputs(
        "usage: probing COMMAND [ARGUMENT...]\n"
        "       probing -t PID inject|backtrace|eval|repl|watch|config|status|stop ...\n"
        "       probing -t PID query|memory|flamegraph|top ...   of what it has recorded\n"
        "       probing PID inject, probing inject PID ...   the same; also ENDPOINT=PID probing eval ...\n"
        "       probing -t HOST:PORT WORD PID ...   on another machine, where `probing serve` runs\n"
        "\n"
        "A black box for AI training: record a Python program, ask the trace in SQL, look inside "
        "while\n"
        "it runs.\n"
        "\n",
        f);
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(f, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs(
        "  help         this text, or the help of a command: probing help record, probing help eval\n"
        "\n"
        "  -t, --target PID   look into a live process: inject (start recording it), backtrace, eval;\n"
        "                     ask what it has recorded: query, memory, flamegraph\n"
        "  ls, bt, e, q, r    short for list, backtrace, eval, query, repl; in, cfg, launch: inject,\n"
        "                     config, record\n"
        "  --version          print the version\n"
        "\n"
        "The usual way:\n"
        "  probing-record python train.py\n"
        "  probing-convert trace.zst out.db\n"
        "  probing query out.db \"SELECT * FROM hot_functions LIMIT 10\"\n"
        "  probing flamegraph -o flame.svg out.db\n",
        f);
}

static const struct command *find(const char *name) {
    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    }
    return NULL;
}

/* Runs a command with argv[0] "probing-NAME", so that it and its messages are the same however it was called.
 */
static int run(const struct command *c, int argc, char **argv) {
    static char name[64];

    snprintf(name, sizeof name, "probing-%s", c->name);
    tool_name = argv[0] = name;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", name, PROBING_VERSION);
        return TOOL_OK;
    }
    return c->run(argc, argv);
}

static int is_number(const char *text) {
    return *text && !text[strspn(text, "0123456789")];
}

/* Replaces this process by the program `name` of this installation. */
static int become(const char *name, char **argv) {
    char path[4096];

    if (tool_lib(name, path, sizeof path) == 0)
        execv(path, argv);
    return tool_fail("cannot run %s: %s", path, strerror(errno));
}

int cmd_serve(int argc, char **argv) {
    (void)argc;
    return become("probing-serve", argv);
}

int cmd_cluster(int argc, char **argv) {
    (void)argc;
    return become("probing-cluster", argv);
}

/* Returns whether the target is HOST:PORT, maybe with http:// or https:// in front. */
static int is_remote(const char *target) {
    const char *colon = strrchr(target, ':');

    return colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789/")];
}

/* Runs `probing -t HOST:PORT WORD [PID] ...`; argv[0] is WORD. */
static int with_remote(const char *target, int argc, char **argv) {
    char **all = calloc((size_t)argc + 3, sizeof *all);

    if (!all)
        return tool_fail("cannot start: no memory");
    all[0] = (char *)(uintptr_t) "probing";
    all[1] = (char *)(uintptr_t)target;
    memcpy(all + 2, argv, (size_t)argc * sizeof *all);
    int code = become("probing-remote", all);
    free(all);
    return code;
}

/* The commands that a process may be given to among their inputs: `probing -t PID ask died` is `probing ask died PID`. */
static int takes_process(const char *name) {
    static const char *const names[] = {"ask", "diff", "stacks", "report"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0)
            return 1;
    }
    return 0;
}

/* Runs such a command; argv[0] is its name. */
static int with_process(const char *pid, int argc, char **argv) {
    int alone = argc == 1 && strcmp(argv[0], "ask") == 0; /* lists the questions */
    char **all = calloc((size_t)argc + 2, sizeof *all);

    if (!all)
        return tool_fail("cannot start: no memory");
    memcpy(all, argv, (size_t)argc * sizeof *all);
    if (!alone)
        all[argc] = (char *)(uintptr_t)pid;
    int code = run(find(argv[0]), argc + !alone, all);
    free(all);
    return code;
}

/* Runs `probing -t TARGET WORD ...`, in whichever order it was written; argv[0] is WORD. */
static int with_target(const char *target, int argc, char **argv) {
    char option[] = "-t", program[] = "probing";
    int pid;

    if (is_remote(target))
        return with_remote(target, argc, argv);
    int code = target_pid(target, &pid);
    if (code != TOOL_OK)
        return code;
    int helped = argc == 2 && strcmp(argv[1], "--help") == 0;
    const struct command *c = helped && live_is_command(argv[0]) ? find(argv[0]) : NULL;
    if (c) /* the command's own help: what it does with files it also does with a process */
        return run(c, argc, argv);
    if (takes_process(argv[0]))
        return with_process(target, argc, argv);
    if (live_is_command(argv[0]) && !helped)
        return live_command(pid, argv[0], argc, argv);
    char **all = calloc((size_t)argc + 4, sizeof *all);
    if (!all)
        return tool_fail("cannot start: no memory");
    all[0] = program;
    all[1] = option;
    all[2] = (char *)(uintptr_t)target;
    memcpy(all + 3, argv, (size_t)argc * sizeof *all);
    code = strcmp(argv[0], "backtrace") == 0 ? cmd_backtrace(argc + 3, all)
                                             : cmd_target(argc + 3, all);
    free(all);
    return code;
}

/* Returns whether, with ENDPOINT set, this command means the process there. Commands that are for processes only do; `query`, `flamegraph`
 * and `backtrace` do if they name no file. */
static int is_for_endpoint(int argc, char **argv) {
    if (is_target_word(argv[0]))
        return 1;
    if (!live_is_command(argv[0]) && strcmp(argv[0], "backtrace") != 0)
        return 0;
    for (int i = 1; i < argc; i++) {
        if (access(argv[i], F_OK) == 0 || strcmp(argv[i], "--core") == 0 ||
            strcmp(argv[i], "--help") == 0)
            return 0;
    }
    return 1;
}

/* The same for an ENDPOINT that is a server elsewhere: the command is followed by the process, and `list` may be asked for as well. */
static int is_for_remote(int argc, char **argv) {
    return strcmp(argv[0], "list") == 0 ||
           (argc > 1 && (is_number(argv[1]) || is_target_word(argv[0])) &&
            is_for_endpoint(argc, argv));
}

/* Replaces the names that PyPI's `probing` has for some commands by ours. The -r of its `launch` is dropped, as `record` does that anyway. Returns the
 * new argc. */
static int spell_out(int argc, char **argv) {
    static char names[][2][16] = {{"ls", "list"},     {"l", "list"},    {"bt", "backtrace"},
                                  {"b", "backtrace"}, {"e", "eval"},    {"q", "query"},
                                  {"r", "repl"},      {"in", "inject"}, {"i", "inject"},
                                  {"cfg", "config"},  {"c", "config"},  {"launch", "record"}};
    int is_launch = argc > 2 && strcmp(argv[1], "launch") == 0;
    int at = argc < 2                                                         ? 0
             : is_number(argv[1])                                             ? 2
             : strcmp(argv[1], "-t") == 0 || strcmp(argv[1], "--target") == 0 ? 3
                                                                              : 1;

    for (size_t i = 0; at && at < argc && i < sizeof names / sizeof *names; i++)
        if (strcmp(argv[at], names[i][0]) == 0) {
            argv[at] = names[i][1];
            break;
        }
    if (is_launch && (strcmp(argv[2], "-r") == 0 || strcmp(argv[2], "--recursive") == 0)) {
        memmove(&argv[2], &argv[3], (size_t)(argc - 2) * sizeof *argv); /* the NULL, too */
        argc--;
    }
    return argc;
}

static int dispatch(int argc, char **argv) {
    const char *base = argc ? strrchr(argv[0], '/') : NULL;
    const struct command *c;

    base = base ? base + 1 : argc ? argv[0] : "probing";
    if (strncmp(base, "probing-", 8) == 0 && (c = find(base + 8)))
        return run(c, argc, argv);
    if (argc < 2) {
        help(stderr);
        return TOOL_USAGE;
    }
    argc = spell_out(argc, argv);
    const char *word = argv[1], *endpoint = getenv("ENDPOINT");
    if (is_number(word) && argc > 2)
        return with_target(word, argc - 2, argv + 2);
    if (argc > 3 && (is_target_word(word) || live_is_command(word)) &&
        (strcmp(argv[2], "-t") == 0 || strcmp(argv[2], "--target") == 0)) {
        const char *target = argv[3];
        argv[3] = argv[1]; /* the command goes to the target's place */
        return with_target(target, argc - 3, argv + 3);
    }
    if ((strcmp(word, "-t") == 0 || strcmp(word, "--target") == 0) && argc > 3 &&
        is_remote(argv[2]))
        return with_remote(argv[2], argc - 3, argv + 3);
    if (endpoint && is_remote(endpoint) && is_for_remote(argc - 1, argv + 1))
        return with_remote(endpoint, argc - 1, argv + 1);
    if (endpoint && *endpoint && !is_remote(endpoint) && is_for_endpoint(argc - 1, argv + 1))
        return with_target(endpoint, argc - 1, argv + 1);
    if (strcmp(word, "-t") == 0 && argc > 3 && (live_is_command(argv[3]) || takes_process(argv[3])))
        return with_target(argv[2], argc - 3, argv + 3);
    if (strncmp(word, "-t", 2) == 0 || strncmp(word, "--target", 8) == 0)
        return strcmp(target_word(argc, argv), "backtrace") == 0 ? cmd_backtrace(argc, argv)
                                                                 : cmd_target(argc, argv);
    if (argc > 2 && is_number(argv[2]) &&
        (is_target_word(word) || strcmp(word, "backtrace") == 0)) { /* probing inject PID */
        const char *target = argv[2];
        argv[2] = argv[1];
        return with_target(target, argc - 2, argv + 2);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("probing %s\n", PROBING_VERSION);
        return TOOL_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        if (argc == 2 || strcmp(argv[2], "help") == 0) {
            help(stdout);
            return TOOL_OK;
        }
        char flag[] = "--help", target[] = "-t", pid[] = "1";
        if (is_target_word(argv[2]))
            return cmd_target(5, (char *[]){argv[0], target, pid, argv[2], flag, NULL});
        if (!(c = find(argv[2])))
            return tool_usage("no command '%s'", argv[2]);
        return run(c, 2, (char *[]){argv[0], flag, NULL});
    }
    if (*word == '-')
        return tool_usage("unknown option '%s'", word);
    if (is_target_word(word)) {
        if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
            char target[] = "-t", pid[] = "1";
            return cmd_target(5, (char *[]){argv[0], target, pid, argv[1], argv[2], NULL});
        }
        return tool_usage("%s is for a live process: probing -t PID %s", word, word);
    }
    if (!(c = find(word)))
        return tool_usage("no command '%s'", word);
    return run(c, argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS,
                   0); /* statistics take a lock for each allocation: 5 % of a conversion's time */
    mallopt(
        M_MMAP_THRESHOLD,
        1 << 20); /* large blocks go back to the kernel when freed: a fifth of what a conversion takes */
    /* Freed small blocks stay with the process for a while: each trace, and each statement, would get them from the kernel again. */
    mallopt(M_TRIM_THRESHOLD, 8 << 20);
    mallopt(M_TOP_PAD, 512 << 10);
    cut_short_install();
    return tool_end(dispatch(argc, argv));
}
