/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_backtrace.c - `probing -t PID backtrace` and `probing backtrace --core FILE`: the stacks of a process, running,
 * stopped or dead. The work is done by gdbplugin/inspect.h, which GDB's probing-backtrace uses too.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../gdbplugin/inspect.h"
#include "common.h"

static void help(FILE *f) {
    fputs(
        "usage: probing -t PID backtrace [OPTION...]\n"
        "       probing backtrace --core FILE [--sysroot DIR] [--exe FILE] [OPTION...]\n"
        "\n"
        "The stacks of all threads of a Python process, the innermost frame first, Python and native\n"
        "frames merged. The process is not stopped: a thread that ran while it was read is marked as\n"
        "not consistent, and shows its Python frames only.\n"
        "\n"
        "      --stop          stop the process for some milliseconds: every stack exact and whole\n"
        "      --thread TID    only the thread with this kernel id\n"
        "      --main          only the main thread\n"
        "      --python        Python frames only\n"
        "      --native        native frames only\n"
        "      --locals        arguments and local variables, from memory: no code runs in it\n"
        "      --tasks         asyncio tasks too: who awaits whom\n"
        "      --json          for programs (documented in probing-backtrace(1))\n"
        "      --folded        one line for each stack, for flame graphs\n"
        "      --color[=WHEN]  always, never, or auto: on a terminal, without NO_COLOR (default)\n"
        "  -v, --verbose       say on stderr for how long the process stood still\n"
        "\n"
        "      --core FILE     a core file, also one packed by zstd, gzip, xz or lz4\n"
        "      --sysroot DIR   the files that the process had mapped are under DIR\n"
        "      --exe FILE      its program is FILE\n"
        "\n"
        "Exit: 0 done; 2 usage; 3 nothing could be read.\n",
        f);
}

/* Returns 1 to print in colour, 0 to print without, -1 where `when` is no known word. */
static int use_color(const char *when) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (strcmp(when, "always") == 0)
        return 1;
    if (strcmp(when, "never") == 0)
        return 0;
    if (strcmp(when, "auto") != 0)
        return -1;
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

static int answer(int pid, struct inspect_stacks *want, int verbose) {
    int code = TOOL_OK, rc;
    char *out;

    rc = inspect_backtrace(pid, want, &out);
    if (rc < 0)
        code = tool_fail("%s", out ? out : strerror(-rc));
    else if (fputs(out, stdout) < 0)
        code = TOOL_FAILED; /* main() reports it */
    if (rc == 0 && verbose && !want->core)
        tool_say(want->stood_ns ? "the process was stopped %.2f ms"
                                : "the process was not stopped (%.0f ms)",
                 (double)want->stood_ns / 1e6);
    inspect_free(out);
    return code;
}

int cmd_backtrace(int argc, char **argv) {
    enum { STOP = 256, THREAD, MAIN, PYTHON, NATIVE, LOCALS, TASKS, JSON, FOLDED, COLOR };
    enum { CORE = 300, SYSROOT, EXE };
    static const struct option options[] = {{"target", required_argument, NULL, 't'},
                                            {"stop", no_argument, NULL, STOP},
                                            {"thread", required_argument, NULL, THREAD},
                                            {"main", no_argument, NULL, MAIN},
                                            {"python", no_argument, NULL, PYTHON},
                                            {"native", no_argument, NULL, NATIVE},
                                            {"locals", no_argument, NULL, LOCALS},
                                            {"tasks", no_argument, NULL, TASKS},
                                            {"json", no_argument, NULL, JSON},
                                            {"folded", no_argument, NULL, FOLDED},
                                            {"color", optional_argument, NULL, COLOR},
                                            {"core", required_argument, NULL, CORE},
                                            {"sysroot", required_argument, NULL, SYSROOT},
                                            {"exe", required_argument, NULL, EXE},
                                            {"verbose", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    static const struct {
        int option;
        unsigned flag;
    } flags[] = {{STOP, INSPECT_STOP},     {MAIN, INSPECT_MAIN},     {PYTHON, INSPECT_PYTHON},
                 {NATIVE, INSPECT_NATIVE}, {LOCALS, INSPECT_LOCALS}, {TASKS, INSPECT_TASKS},
                 {JSON, INSPECT_JSON},     {FOLDED, INSPECT_FOLDED}};
    struct inspect_stacks want = {0};
    const char *color = "auto";
    int c, pid = 0, verbose = 0, paint;
    double number;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":t:vh", options, NULL)) != -1) {
        switch (c) {
        case 't':
            if (tool_number(optarg, 1, 1 << 30, &number) < 0)
                return tool_usage("'%s' is no process id", optarg);
            pid = (int)number;
            break;
        case THREAD:
            if (tool_number(optarg, 1, 1 << 30, &number) < 0)
                return tool_usage("'%s' is no thread id", optarg);
            want.tid = (int)number;
            break;
        case COLOR:
            color = optarg ? optarg : "always";
            break;
        case CORE:
            want.core = optarg;
            break;
        case SYSROOT:
            want.sysroot = optarg;
            break;
        case EXE:
            want.exe = optarg;
            break;
        case 'v':
            verbose = 1;
            break;
        case 'h':
            help(stdout);
            return TOOL_OK;
        case '?':
        case ':':
            return tool_bad_option(argv);
        default:
            for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
                if (flags[i].option == c)
                    want.flags |= flags[i].flag;
            }
        }
    }
    if (optind < argc && strcmp(argv[optind], "backtrace") == 0) /* probing -t PID backtrace */
        optind++;
    if (optind < argc)
        return tool_usage("backtrace takes no argument '%s'", argv[optind]);
    if (!pid == !want.core)
        return tool_usage(pid ? "-t PID or --core FILE, not both"
                              : "of which process? -t PID, or --core FILE");
    if ((want.sysroot || want.exe) && !want.core)
        return tool_usage("--sysroot and --exe are for a core: --core FILE");
    if (want.flags & INSPECT_STOP && want.core)
        return tool_usage("a core stands still already: --stop is for a process");
    if (want.flags & INSPECT_PYTHON && want.flags & INSPECT_NATIVE)
        return tool_usage("--python or --native, not both");
    if (want.flags & INSPECT_JSON && want.flags & INSPECT_FOLDED)
        return tool_usage("--json or --folded, not both");
    paint = use_color(color);
    if (paint < 0)
        return tool_usage("--color is auto, always or never, not '%s'", color);
    if (paint)
        want.flags |= INSPECT_COLOR;
    return answer(pid, &want, verbose);
}
