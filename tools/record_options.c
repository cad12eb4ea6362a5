/* SPDX-License-Identifier: Apache-2.0 */
#include "record_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "target.h"

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

/* --set KEY=VALUE */
static int take_set(struct record_options *s, char *text) {
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

int record_options_parse(int argc, char **argv, struct record_options *s) {
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

const char *record_options_env(enum setting_id id, char name[SETTING_ENV]) {
    const char *text = getenv(setting_env(id, name));

    if (!text && id == SETTING_torch_exprs)
        text = getenv(strcpy(name, "PROBE_TORCH_EXPRS"));
    return text;
}

int record_options_check(struct record_options *s) {
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
        const char *env = record_options_env(id, name), *text = s->other[i] ? s->other[i] : env;
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
