/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_target.c - `probing -t PID ...`: does what the GDB commands do, but without GDB, by the same library
 * (gdbplugin/inspect.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gdbplugin/inspect.h"
#include "../traces/settings.h"
#include "options.h"
#include "target.h"

static const char help[] =
    "usage: probing -t PID inject [-o FILE] [-r HZ] [--no-native] [--force]\n"
    "                      [--method METHOD] [--dry-run]\n"
    "       probing -t PID backtrace [--json] [--python]\n"
    "       probing -t PID eval [--frame N] [--timeout S] [--json] CODE | -f FILE\n"
    "       probing -t PID repl [--frame N]\n"
    "       probing -t PID config [--json] [KEY | KEY=VALUE...]\n"
    "       probing -t PID status [--json]\n"
    "       probing -t PID stop\n"
    "       probing -t PID memory\n"
    "       probing -t PID query|flamegraph|top ...\n"
    "\n"
    "Looks into a live Python process, or begins to record it.\n"
    "\n"
    "  inject      load the agent and record; it stands still for some milliseconds\n"
    "  backtrace   the stacks of all threads, Python and native frames merged\n"
    "  eval        run Python code in it: prints what it prints, then the value of an\n"
    "              expression; brings the agent in when it is not there\n"
    "  repl        a Python prompt in it\n"
    "  config      show and change the settings of its recording\n"
    "  status      what the agent says of its recording\n"
    "  stop        end the recording and close the trace\n"
    "  memory      its memory in the last 20 seconds or steps that were recorded\n"
    "  query, ...  of what it has recorded, as of a trace: probing query --help\n"
    "\n"
    "  -o, --output FILE   the trace (default probing-HOST-PID.zst in the target's directory)\n"
    "  -r, --rate HZ       samples per second, up to 1000 (default 10)\n"
    "      --no-native     Python frames only\n"
    "      --force         inject where a seccomp filter may kill for it, or there is no Python\n"
    "      --method M      get in by this one only: native (a thread calls dlopen at a safe\n"
    "                      point), pep768 (3.14+, the interpreter's own way), pending (up to\n"
    "                      3.13, a pending call), breakpoint (named, but never done)\n"
    "      --dry-run       say what stands against an injection and how it would be done\n"
    "      --json          status, backtrace, eval, config, memory: for programs\n"
    "      --python        Python frames only\n"
    "      --timeout S     how long an answer is waited for (default 10)\n"
    "\n"
    "More on one of them: probing -t PID eval --help\n"
    "Exit: 0 done; 1 the code raised an exception; 2 usage; 3 nothing could be done.\n";

struct target {
    int pid;
    unsigned flags;
    const char *output;
    double hz, timeout;
    int no_native;
};

/* Prints the answer, or reports why there is none, and frees it. Returns the exit code. */
static int finish(int rc, char *out) {
    int code = TOOL_OK;

    if (rc < 0)
        code = tool_fail("%s", out ? out : strerror(-rc));
    else if (out && *out)
        printf("%s%s", out, out[strlen(out) - 1] == '\n' ? "" : "\n");
    inspect_free(out);
    return code;
}

static int do_inject(const struct target *t) {
    char conf[8192] = "", path[4096], *out;
    size_t n = 0;
    int rc;

    if (t->output) {
        rc = tool_absolute(t->output, path, sizeof path);
        if (rc < 0)
            return tool_fail("cannot write %s: %s", t->output, strerror(-rc));
        n += (size_t)snprintf(conf + n, sizeof conf - n, "PROBING_TRACE=%s\n", path);
    }
    if (t->hz > 0)
        n += (size_t)snprintf(conf + n, sizeof conf - n, "PROBING_SAMPLE_RATE=%.9g\n", 1.0 / t->hz);
    if (t->no_native)
        snprintf(conf + n, sizeof conf - n, "PROBING_NATIVE=0\n");
    rc = target_inject(t->pid, conf, t->flags, &out);
    return finish(rc, out);
}

static int do_stop(const struct target *t) {
    char *out;
    int rc = inspect_mail(t->pid, MAIL_STOP, "", (int)(t->timeout * 1000), &out);

    if (rc < 0)
        return finish(rc, out);
    inspect_free(out);
    printf("process %d is no longer recorded; its trace is closed\n", t->pid);
    return TOOL_OK;
}

static int run(const struct target *t, const char *what, int argc, char **argv) {
    char *out;
    int rc;

    if (argc != 0)
        return tool_usage("%s takes no argument '%s'", what, argv[0]);
    if (strcmp(what, "inject") == 0)
        return do_inject(t);
    if (strcmp(what, "stop") == 0)
        return do_stop(t);
    if (strcmp(what, "status") == 0)
        rc = inspect_status(t->pid, t->flags, &out);
    else
        return tool_usage("no target command '%s'", what);
    return finish(rc, out);
}

static int take_method(const char *option, const char *name, void *into) {
    struct target *t = into;
    static const char *const names[INJECT_METHODS] = {"any", "native", "pep768", "pending",
                                                      "breakpoint"};

    for (unsigned m = 0; m < INJECT_METHODS; m++) {
        if (strcmp(name, names[m]) == 0) {
            t->flags |= INJECT_BY(m);
            return TOOL_OK;
        }
    }
    return tool_usage("--%s is native, pep768, pending or breakpoint, not '%s'", option, name);
}

static int take_rate(const char *name, const char *value, void *hz) {
    if (setting_rate(value, 0.001, 1000, hz) == 0)
        return TOOL_OK;
    return tool_usage("the %s must be up to 1000 samples a second (100, 100Hz, 10ms), not '%s'",
                      name, value);
}

int cmd_target(int argc, char **argv) {
    static const struct {
        const char *word;
        int (*run)(int, char **);
    } own[] = {
        {"eval", cmd_eval}, {"repl", cmd_repl}, {"watch", cmd_watch}, {"config", cmd_config}};
    struct target t = {.timeout = 10};
    int *flags = (int *)&t.flags, rc;
    const struct tool_option options[] = {OPTION_CALL("target", 't', option_pid, &t.pid),
                                          OPTION_TEXT("output", 'o', &t.output),
                                          OPTION_CALL("rate", 'r', take_rate, &t.hz),
                                          OPTION_FLAG("no-native", 0, &t.no_native),
                                          OPTION_BITS("force", 0, flags, INSPECT_FORCE),
                                          OPTION_BITS("json", 0, flags, INSPECT_JSON),
                                          OPTION_BITS("python", 0, flags, INSPECT_PYTHON),
                                          OPTION_TIMEOUT(&t.timeout),
                                          OPTION_CALL("method", 0, take_method, &t),
                                          OPTION_BITS("dry-run", 0, flags, INJECT_DRY_RUN),
                                          {0}};
    const char *word = target_word(argc, argv);

    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(word, own[i].word) == 0)
            return own[i].run(argc, argv);
    }
    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    if (!t.pid)
        return tool_usage("which process? -t PID");
    if (optind == argc)
        return tool_usage(
            "what shall be done with process %d? inject, backtrace, eval, repl, config, status, stop",
            t.pid);
    word = argv[optind];
    if (t.flags & INSPECT_JSON && (strcmp(word, "inject") == 0 || strcmp(word, "stop") == 0))
        return tool_usage("%s has no --json: its exit code says what happened", word);
    return run(&t, word, argc - optind - 1, argv + optind + 1);
}
