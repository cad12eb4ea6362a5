/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - `probing`: one program, one row per command.
 *
 *     probing record ...     the same as     probing-record ...     (the program looks at argv[0])
 *     probing -t PID ...     GDB commands on a live process (cmd_target.c)
 */
#include <stdio.h>
#include <string.h>

#include "common.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"record", cmd_record, "run a program and record it into a trace"},
    {"convert", cmd_convert, "turn traces into one SQLite database"},
    {"query", cmd_query, "ask a database, or traces, in SQL"},
    {"flamegraph", cmd_flamegraph, "draw where the time goes (SVG)"},
    {"python-install", cmd_python_install,
     "make `import probing` and PROBING=1 work with a Python"},
    {"list", cmd_list, "show what is being recorded now"},
    {"backtrace", cmd_backtrace, "the stacks of a core file (of a process: -t PID)"},
};
#define NCOMMANDS (sizeof commands / sizeof *commands)

/* What is asked of a live process: `probing -t PID NAME` (cmd_target.c). */
static const char *const target_commands[] = {"inject", "eval", "repl", "config", "status", "stop"};

static int is_target_command(const char *name) {
    for (size_t i = 0; i < sizeof target_commands / sizeof *target_commands; i++) {
        if (strcmp(name, target_commands[i]) == 0)
            return 1;
    }
    return 0;
}

static void help(FILE *f) {
    fputs("usage: probing COMMAND [ARGUMENT...]\n"
          "       probing -t PID inject|backtrace|eval|repl|config|status|stop ...\n"
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
        "  -t, --target PID   look into a live process: inject (start recording it), backtrace, "
        "eval\n"
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

/* argv[0] becomes "probing-NAME": commands and their messages never see which way they were called.
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

/* The command of `probing -t PID COMMAND ...`, or "". */
static const char *target_command(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "--target") == 0)
            i++;
        else if (argv[i][0] != '-')
            return argv[i];
    }
    return "";
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
    const char *word = argv[1];
    if (strncmp(word, "-t", 2) == 0 || strncmp(word, "--target", 8) == 0)
        return strcmp(target_command(argc, argv), "backtrace") == 0 ? cmd_backtrace(argc, argv)
                                                                    : cmd_target(argc, argv);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("probing %s\n", PROBING_VERSION);
        return TOOL_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        if (argc == 2) {
            help(stdout);
            return TOOL_OK;
        }
        char flag[] = "--help", target[] = "-t", pid[] = "1";
        if (is_target_command(argv[2]))
            return cmd_target(5, (char *[]){argv[0], target, pid, argv[2], flag, NULL});
        if (!(c = find(argv[2])))
            return tool_usage("no command '%s'", argv[2]);
        return run(c, 2, (char *[]){argv[0], flag, NULL});
    }
    if (*word == '-')
        return tool_usage("unknown option '%s'", word);
    if (is_target_command(word)) {
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
    int rc = dispatch(argc, argv);

    /* A full disk under `> out.csv` must not pass for success. */
    if (fflush(stdout) || ferror(stdout))
        return tool_fail("cannot write to standard output: the disk is full, or it was closed");
    return rc;
}
