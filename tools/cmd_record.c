/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_record.c - probing-record: runs a command with the agent preloaded into it and into all that it starts. At the end
 * it completes the traces and prints one line that says what was recorded.
 *
 * The child gets all it needs by environment variables (agent/core/agent.h). This program stays its parent for
 * two reasons: it completes the traces of processes that were killed, from their live
 * files, and it prints the summary.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../traces/settings.h"
#include "../writer/live.h"
#include "common.h"
#include "record_attach.h"
#include "record_options.h"
#include "record_output.h"
#include "record_run.h"
#include "record_serve.h"
#include "record_summary.h"

/* The exit codes of env(1), nohup(1) and timeout(1): programs rarely use them themselves. */
enum { RECORD_FAILED = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

struct recording {
    struct record_options opt;
    char session[64];
    struct run_id run;
    char preload[PATH_MAX];
    struct record_output out;
};

/* ---- before ---- */

/* Reports in one line why there is no recording; the program runs all the same. */
static void run_without(const char *why) {
    tool_say("%s; the program runs unrecorded", why);
}

static int find_agent(struct recording *s, char *why, size_t n) {
    static const char *const parts[] = {"libprobing-agent.so", "libprobing-preload.so"};

    for (int i = 0; i < 2; i++) { /* s->preload keeps the path of the last one */
        int rc = tool_lib(parts[i], s->preload, sizeof s->preload);
        if (rc < 0) {
            snprintf(why, n, "cannot find its part %s: %s (install it again, or run make)",
                     s->preload, strerror(-rc));
            return -1;
        }
    }
    if (strpbrk(s->preload, " :")) {
        snprintf(why, n,
                 "cannot preload %s: LD_PRELOAD takes no path with a space or colon (install it "
                 "elsewhere)",
                 s->preload);
        return -1;
    }
    return 0;
}

/* Returns 0 if the command can be run; else reports the reason and returns the exit code. */
static int find_command(const char *command) {
    char path[PATH_MAX];
    int rc = run_find(command, path, sizeof path);
    size_t n = strlen(command);
    const char *script =
        n > 3 && !strcmp(command + n - 3, ".py") && !access(command, R_OK) ? command : NULL;

    if (rc == 0)
        return 0;
    if (script)
        tool_say("cannot run %s: %s (for a script: probing-record python3 %s)", command,
                 rc == -ENOENT ? "no such command" : "not an executable file", script);
    else if (rc == -ENOENT)
        tool_say("cannot run %s: no such command%s", command,
                 strchr(command, '/') ? "" : " in the PATH");
    else
        tool_say("cannot run %s: %s", path,
                 rc == -EACCES ? "not an executable file" : strerror(-rc));
    return rc == -ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
}

/* ---- the child's side ---- */

static void setup_child(void *arg) {
    const struct recording *s = arg;
    const char *old = getenv("LD_PRELOAD");
    char pid[24], name[SETTING_ENV], *list = NULL;

    if (!old || !*old)
        setenv("LD_PRELOAD", s->preload, 1);
    else if (!strstr(old, s->preload) && asprintf(&list, "%s:%s", s->preload, old) > 0)
        setenv("LD_PRELOAD", list, 1);
    free(list);
    snprintf(pid, sizeof pid, "%d", (int)(s->out.joined ? getppid() : getpid()));
    setenv("PROBING_MAIN_PID", pid, 1);
    setenv("PROBING_RUN", s->run.run, 1);
    setenv("PROBING_TRACE", s->out.value, 1);
    setenv("PROBING_SESSION", s->session, 1);
    if (*s->opt.period)
        setenv("PROBING_SAMPLE_RATE", s->opt.period, 1);
    if (!s->opt.native)
        setenv("PROBING_NATIVE", "0", 1);
    for (unsigned i = 0; i < SETTING_N; i++)
        if (s->opt.other[i])
            setenv(setting_env((enum setting_id)i, name), s->opt.other[i], 1);
}

static void setup_nothing(void *arg) {
    (void)arg;
}

/* ---- reports from processes that could not be recorded (agent/core/report.h) ---- */

static volatile sig_atomic_t unrecorded; /* number of reports from such processes */
static int report_fd = -1;

/* Prints the first report at once, as the program may run for long; further ones are only counted. */
static void on_report(int sig) {
    char line[4096] = "probing-record: ";
    int saved = errno;
    ssize_t n, head = (ssize_t)strlen(line);

    (void)sig;
    while ((n = read(report_fd, line + head, sizeof line - (size_t)head)) > 0) {
        char *end = memchr(line + head, '\n', (size_t)n);
        if (!unrecorded && end)
            n = write(STDERR_FILENO, line, (size_t)(end + 1 - line));
        unrecorded++;
    }
    errno = saved;
}

static void take_reports(void) {
    struct sigaction sa = {.sa_handler = on_report, .sa_flags = SA_RESTART};
    char where[80];
    struct stat st;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    report_fd = fds[0];
    sigaction(SIGIO, &sa, NULL);
    fcntl(fds[0], F_SETOWN, getpid());
    fcntl(fds[0], F_SETFL, O_NONBLOCK | O_ASYNC);
    if (fstat(fds[1], &st) == 0) {
        snprintf(where, sizeof where, "%d:%d:%lu", (int)getpid(), fds[1], (unsigned long)st.st_ino);
        setenv("PROBING_REPORT", where, 1);
    }
}

/* ---- after ---- */

static int environment(const char *name, char *buf, size_t n) {
    const char *v = getenv(name);

    return v && snprintf(buf, n, "%s", v) < (int)n;
}

/* Reports, also with -q, Python processes whose stacks were not recorded though all else was; the view notes names each of them. */
static void say_unsampled(const struct record_output *o) {
    if (o->unsampled > 1)
        tool_say("%s (and in %u more processes)", o->unsampled_text, o->unsampled - 1);
    else if (o->unsampled)
        tool_say("%s", o->unsampled_text);
}

/* Reports variables that were asked for but not recorded: also with -q, as the user asked for them by name. */
static void say_variables(const struct recording *s) {
    char name[SETTING_ENV];
    const char *list = s->opt.other[SETTING_torch_exprs];
    if (!list)
        list = record_options_env(SETTING_torch_exprs, name);
    if (!list || !*list || !s->out.exact || !s->out.processes || s->out.running)
        return;
    if (s->out.variable_note[0])
        tool_say("--exprs: %s", s->out.variable_note);
    else if (!s->out.variables)
        tool_say("--exprs: nothing was recorded: no optimizer of PyTorch stepped, nor was "
                 "probing.step() called");
}

/* Stores the path of the first usable place for live files. Returns 0, or -errno when none is usable. */
static int find_run_dir(char *buf, size_t n) {
    int rc = -ENOENT, err = rc; /* with several reasons, the first place's is returned */
    for (unsigned i = 0; err && i < LIVE_PLACES; i++) {
        err = live_place(i, getenv("PROBING_RUN_DIR"), getenv("XDG_RUNTIME_DIR"), buf, n);
        rc = err && rc != -ENOENT ? rc : err;
    }
    return rc;
}

/* Prepares all that a recording needs before the program starts. Returns 0, or -1 with the reason in `why`. */
static int prepare(struct recording *s, char *why, size_t n) {
    char run_dir[PATH_MAX];
    const char *wanted = getenv("PROBING_RUN_DIR");
    int rc;

    if (find_agent(s, why, n) < 0)
        return -1;
    if ((rc = find_run_dir(run_dir, sizeof run_dir)) < 0) {
        snprintf(why, n,
                 "cannot use a run directory for live files: %s (set PROBING_RUN_DIR to a "
                 "directory of yours, mode 0700)",
                 strerror(-rc));
        return -1;
    }
    if (wanted && *wanted)
        setenv("PROBING_RUN_DIR", run_dir, 1); /* the child gets one that can be used */
    snprintf(s->session, sizeof s->session, "%llx-%x",
             (unsigned long long)sys_clock(CLOCK_REALTIME), (unsigned)getpid());
    run_self(s->run.run, sizeof s->run.run);
    run_job(s->run.job, environment);
    if (output_resolve(&s->out, s->opt.output, s->session) == 0 &&
        output_prepare(&s->out, &s->run) == 0) {
        take_reports();
        return 0;
    }
    snprintf(why, n, "%s", s->out.why);
    return -1;
}

/* Records a running process (-p PID). Environment variables cannot reach it, so options that need them are refused: `probing -t PID config` changes
 * those settings. */
static int attach(const struct recording *s) {
    struct attach a = {.pid = s->opt.pid,
                       .duration = s->opt.duration,
                       .native = s->opt.native,
                       .quiet = s->opt.quiet};

    a.output = s->opt.output_given ? s->opt.output : NULL;
    a.hz = s->opt.rate ? 1 / strtod(s->opt.period, NULL) : 0;
    for (unsigned i = 0; i < SETTING_N; i++) {
        if (s->opt.other[i])
            return tool_usage(
                "-p takes -d, -r, -o, --no-native and -q; for %s: probing -t %d config",
                setting_at((enum setting_id)i)->key, s->opt.pid);
    }
    return record_attach(&a);
}

int cmd_record(int argc, char **argv) {
    struct recording s = {.opt = {.output = "trace.zst", .native = 1, .symbols = 1}};
    struct run_result r;
    char why[sizeof s.out.why];
    int rc;

    if ((rc = record_options_parse(argc, argv, &s.opt)) <= 0)
        return rc < 0 ? RECORD_FAILED : 0;
    argv += optind;
    if (!s.opt.pid)
        run_signals(1);
    if (record_options_check(&s.opt) < 0)
        return RECORD_FAILED;
    if (s.opt.pid)
        return attach(&s);
    if ((rc = find_command(argv[0])))
        return rc;
    int recorded = prepare(&s, why, sizeof why) == 0;
    if (!recorded)
        run_without(why);
    record_serve();
    if ((rc = run_child(argv, recorded ? setup_child : setup_nothing, &s, &r)) < 0) {
        /* No further process may be started: the program replaces this one. */
        tool_say("cannot start a process: %s; the program runs unrecorded", strerror(-rc));
        if (report_fd >= 0)
            fcntl(report_fd, F_SETFL, 0); /* no more SIGIO: without a handler it kills */
        run_signals(0);
        execvp(argv[0], argv);
        return errno == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    }
    if (r.exec_error) {
        tool_say("cannot run %s: %s", argv[0], strerror(r.exec_error));
        return r.status;
    }
    if (recorded) {
        s.out.child = r.pid;
        s.out.signal = r.signal;
        s.out.status = r.status;
        s.out.symbols = s.opt.symbols && s.opt.native;
        output_collect(&s.out);
        if (!s.opt.quiet)
            record_summary(&s.out, &r, argv[0], (unsigned)unrecorded);
        say_unsampled(&s.out);
        say_variables(&s);
    }
    return r.signal ? 128 + r.signal : r.status;
}
