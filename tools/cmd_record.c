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
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../traces/settings.h"
#include "../writer/live.h"
#include "common.h"
#include "record_attach.h"
#include "record_output.h"
#include "record_run.h"
#include "record_serve.h"
#include "record_summary.h"
#include "target.h"

/* The exit codes of env(1), nohup(1) and timeout(1): programs rarely use them themselves. */
enum { RECORD_FAILED = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

#define HZ_MIN 0.001
#define HZ_MAX 1000.0

static const char help[] =
    "usage: probing-record [OPTION...] [--] COMMAND [ARGUMENT...]\n"
    "       probing-record -p PID [-d SECONDS] [-r HZ] [-o FILE]\n"
    "\n"
    "Runs COMMAND and records every Python process of it into a trace. The command keeps the\n"
    "terminal, its standard streams and its exit code; the trace survives if it is killed.\n"
    "\n"
    "  -o, --output FILE|DIR  write the trace to FILE (default trace.zst) and those of the run's other\n"
    "                         processes to FILE.d/, or all of them to the directory DIR (an existing\n"
    "                         one, or a name that ends in /). An existing FILE becomes FILE.old\n"
    "  -r, --rate HZ          samples a second, 0.001 to 1000, or a period: 100, 100Hz, 10ms\n"
    "                         (default 10, or what $PROBING_SAMPLE_RATE says)\n"
    "      --no-native        sample Python frames only\n"
    "      --no-symbols       do not look up the names of native code at the end: then they are found\n"
    "                         only on this machine, while its libraries are the same\n"
    "      --metrics SECONDS  time between CPU, memory, I/O readings, 0.1 to 3600, 0 = none "
    "(default 1)\n"
    "      --torch SPEC       PyTorch: on (default), off, a share of the steps (0.001 to 1), or\n"
    "                         rate=RATE,layer_rate=RATE,backward=on|off,cuda=auto|all|off,\n"
    "                         memory=auto|all|off,exprs=LIST\n"
    "      --exprs LIST       variables to record at the end of each step: NAME@FUNCTION,...\n"
    "      --set KEY=VALUE    any setting that `probing config` knows; may be given again\n"
    "  -p, --pid PID          record a process that runs already, by injection, and stop again\n"
    "  -d, --duration SECONDS with -p: for so long (otherwise until Ctrl-C, or the process ends)\n"
    "                         -o then also takes FILE.db (converted), FILE.svg (flame graph),\n"
    "                         FILE.html (report), FILE.folded (collapsed stacks) and what\n"
    "                         probing-export writes: FILE.json, FILE.pb.gz, FILE.pftrace, ...;\n"
    "                         default trace-PID.zst\n"
    "  -q, --quiet            no summary line\n"
    "  -h, --help             this text\n"
    "      --version          print the version\n"
    "\n"
    "Without an option the environment decides: PROBING_SAMPLE_RATE, PROBING_METRICS, PROBING_NATIVE,\n"
    "PROBING_TORCH_PROFILING, PROBE_TORCH_EXPRS, and so on. A bad value in it is said, and\n"
    "the default used. PROBING_SAMPLE_RATE: seconds, or with its unit, 100Hz, 10ms.\n"
    "\n"
    "Exit code: the command's own; 128+N when signal N killed it; 127 when it was not found, 126 "
    "when it\n"
    "could not be run; 125 for a wrong option (then the command did not run). What cannot be recorded\n"
    "is said in one line, and the command runs all the same.\n"
    "\n"
    "Then: probing-convert trace.zst out.db\n";

struct settings {
    const char *output;
    const char *rate;             /* text given to -r */
    const char *other[SETTING_N]; /* given to --metrics, --torch, --exprs, --set, or NULL */
    int native, symbols, quiet, output_given;
    int pid;         /* the running process to record; 0: a command is run instead */
    double duration; /* with pid: seconds; 0: until a signal, or the process's end */
    char period[32]; /* value for PROBING_SAMPLE_RATE; "" when -r was not given */
    char session[64];
    struct run_id run;
    char preload[PATH_MAX];
    struct record_output out;
};

/* ---- before ---- */

/* --set KEY=VALUE */
static int take_set(struct settings *s, char *text) {
    char why[SETTING_WHY], *eq = strchr(text, '=');
    int id;

    if (!eq) {
        tool_usage("--set %s: it must be KEY=VALUE", text);
        return -1;
    }
    *eq = '\0';
    id = setting_find(text);
    if (id < 0) {
        setting_unknown(text, why, sizeof why);
        tool_usage("--set: %s", why);
        return -1;
    }
    s->other[id] = eq + 1;
    return 0;
}

static int parse(int argc, char **argv, struct settings *s) {
    enum { NO_NATIVE = 256, NO_SYMBOLS, METRICS, TORCH, EXPRS, SET };
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},
        {"rate", required_argument, NULL, 'r'},
        {"no-native", no_argument, NULL, NO_NATIVE},
        {"no-symbols", no_argument, NULL, NO_SYMBOLS},
        {"quiet", no_argument, NULL, 'q'},
        {"pid", required_argument, NULL, 'p'},
        {"duration", required_argument, NULL, 'd'},
        {"metrics", required_argument, NULL, METRICS},
        {"torch", required_argument, NULL, TORCH},
        {"exprs", required_argument, NULL, EXPRS},
        {"set", required_argument, NULL, SET},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:o:r:p:d:qh", options, NULL)) != -1) {
        switch (c) {
        case 'o':
            s->output = optarg;
            s->output_given = 1;
            if (*optarg && strcmp(optarg, "-") != 0)
                break;
            tool_usage("cannot write traces to standard output: each process writes its own file "
                       "(give -o FILE or -o DIRECTORY/)");
            return -1;
        case 'r':
            s->rate = optarg;
            break;
        case NO_NATIVE:
            s->native = 0;
            break;
        case NO_SYMBOLS:
            s->symbols = 0;
            break;
        case METRICS:
            s->other[SETTING_metrics] = optarg;
            break;
        case TORCH:
            s->other[SETTING_torch_profiling] = optarg;
            break;
        case EXPRS:
            s->other[SETTING_torch_exprs] = optarg;
            break;
        case SET:
            if (take_set(s, optarg) < 0)
                return -1;
            break;
        case 'p':
            if (target_pid(optarg, &s->pid) != TOOL_OK)
                return -1;
            break;
        case 'd':
            if (tool_number(optarg, 0.01, 1e9, &s->duration) == 0)
                break;
            tool_usage("-d %s: seconds, please", optarg);
            return -1;
        case 'q':
            s->quiet = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            tool_bad_option(argv);
            return -1;
        }
    }
    if (s->pid && optind < argc) {
        tool_usage("either -p %d or a command", s->pid);
        return -1;
    }
    if (!s->pid && s->duration > 0) {
        tool_usage(
            "-d is for a process that runs already (-p PID); of a command: timeout %g probing-record ...",
            s->duration);
        return -1;
    }
    if (optind >= argc && !s->pid) {
        tool_usage("no command to run: probing-record [OPTION...] [--] COMMAND [ARGUMENT...]");
        return -1;
    }
    return 1;
}

/* Returns a setting's value from the environment, or NULL; puts the variable's name into `name`. */
static const char *from_environment(enum setting_id id, char name[SETTING_ENV]) {
    const char *text = getenv(setting_env(id, name));

    if (!text && id == SETTING_torch_exprs)
        text = getenv(strcpy(name, "PROBE_TORCH_EXPRS"));
    return text;
}

/* Checks all settings, from the options or the environment. A wrong option is refused. A wrong variable, which may have been set
 * for something else long ago, is only reported, and the default is used: the agent does the same. */
static int check_settings(struct settings *s) {
    char why[SETTING_WHY], name[SETTING_ENV];
    struct setting_value v;
    double hz;

    if (s->rate && setting_rate(s->rate, HZ_MIN, HZ_MAX, &hz) < 0) {
        tool_usage("-r %s: the rate must be %g to %g samples a second", s->rate, HZ_MIN, HZ_MAX);
        return -1;
    }
    if (s->rate)
        snprintf(s->period, sizeof s->period, "%.9g", 1 / hz);
    for (unsigned i = 0; i < SETTING_N; i++) {
        enum setting_id id = (enum setting_id)i;
        const char *env = from_environment(id, name), *text = s->other[i] ? s->other[i] : env;
        if (!text || (id == SETTING_sample_rate && s->rate))
            continue;
        if (setting_parse(id, text, &v, why, sizeof why) == 0) {
            if (setting_advice(id, text, why, sizeof why))
                tool_say("%s", why);
            continue;
        }
        if (!s->other[i]) {
            tool_say("%s%s; '%s' is used", name, why + strcspn(why, "="), setting_at(id)->initial);
            continue;
        }
        tool_usage("%s%s", setting_at(id)->key, why + strcspn(why, "="));
        return -1;
    }
    for (char **e = environ; *e; e++)
        if (setting_misspelt(*e, why, sizeof why))
            tool_say("%s", why);
    return 0;
}

/* Reports in one line why there is no recording; the program runs all the same. */
static void run_without(const char *why) {
    tool_say("%s; the program runs unrecorded", why);
}

static int find_agent(struct settings *s, char *why, size_t n) {
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
    const struct settings *s = arg;
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
    if (*s->period)
        setenv("PROBING_SAMPLE_RATE", s->period, 1);
    if (!s->native)
        setenv("PROBING_NATIVE", "0", 1);
    for (unsigned i = 0; i < SETTING_N; i++)
        if (s->other[i])
            setenv(setting_env((enum setting_id)i, name), s->other[i], 1);
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
static void say_variables(const struct settings *s) {
    char name[SETTING_ENV];
    const char *list = s->other[SETTING_torch_exprs];
    if (!list)
        list = from_environment(SETTING_torch_exprs, name);
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
static int prepare(struct settings *s, char *why, size_t n) {
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
    if (output_resolve(&s->out, s->output, s->session) == 0 &&
        output_prepare(&s->out, &s->run) == 0) {
        take_reports();
        return 0;
    }
    snprintf(why, n, "%s", s->out.why);
    return -1;
}

/* Records a running process (-p PID). Environment variables cannot reach it, so options that need them are refused: `probing -t PID config` changes
 * those settings. */
static int attach(const struct settings *s) {
    struct attach a = {
        .pid = s->pid, .duration = s->duration, .native = s->native, .quiet = s->quiet};

    a.output = s->output_given ? s->output : NULL;
    a.hz = s->rate ? 1 / strtod(s->period, NULL) : 0;
    for (unsigned i = 0; i < SETTING_N; i++) {
        if (s->other[i])
            return tool_usage(
                "-p takes -d, -r, -o, --no-native and -q; for %s: probing -t %d config",
                setting_at((enum setting_id)i)->key, s->pid);
    }
    return record_attach(&a);
}

int cmd_record(int argc, char **argv) {
    struct settings s = {.output = "trace.zst", .native = 1, .symbols = 1};
    struct run_result r;
    char why[sizeof s.out.why];
    int rc;

    if ((rc = parse(argc, argv, &s)) <= 0)
        return rc < 0 ? RECORD_FAILED : 0;
    argv += optind;
    if (!s.pid)
        run_signals(1);
    if (check_settings(&s) < 0)
        return RECORD_FAILED;
    if (s.pid)
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
        s.out.symbols = s.symbols && s.native;
        output_collect(&s.out);
        if (!s.quiet)
            record_summary(&s.out, &r, argv[0], (unsigned)unrecorded);
        say_unsampled(&s.out);
        say_variables(&s);
    }
    return r.signal ? 128 + r.signal : r.status;
}
