/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_convert.c - `probing-convert`: traces in, one SQLite database out (converter/convert.h does it).
 *
 * Here: the command line, progress and the summary. Processes that still write one of the inputs, or died before
 * they could: live_inputs.h.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../converter/convert.h"
#include "common.h"
#include "live_inputs.h"

static volatile sig_atomic_t interrupted;

struct progress {
    struct timespec start;
    int tty, shown;
    double last; /* seconds after start at which it was drawn last */
};

static void help(void) {
    puts(
        "usage: probing-convert [OPTION...] INPUT... OUT.db\n"
        "\n"
        "Turn traces into one SQLite database.\n"
        "\n"
        "INPUT is a trace file, a directory (every .zst in it), or - for stdin. With trace.zst come\n"
        "the traces of the other processes of its run (trace.zst.d/). A trace may still be\n"
        "recording, cut off or damaged: every good block is kept.\n"
        "\n"
        "  -f, --force      replace OUT.db if it is a database of probing-convert, or empty\n"
        "      --only       take the named files alone, without their .d directories\n"
        "      --debuginfod let libdw fetch debug information over the network (DEBUGINFOD_URLS)\n"
        "      --json       print a summary as JSON on stdout\n"
        "  -q, --quiet      no summary line, no progress\n"
        "  -h, --help       this text\n"
        "      --version    print the version\n"
        "\n"
        "Exit status: 0 done; 1 done, but an input was damaged or could not be used; 2 wrong usage;\n"
        "3 no database was written.\n"
        "\n"
        "Then:  sqlite3 OUT.db \"SELECT * FROM hot_functions LIMIT 10\"");
}

static void on_signal(int sig) {
    (void)sig;
    interrupted = 1;
}

static double since(const struct timespec *start) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

static void clear_progress(struct progress *p) {
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = 0;
}

static int tick(void *ctx, double part) {
    struct progress *p = ctx;
    double t = since(&p->start);

    if (interrupted)
        return 1;
    if (p->tty && t > 1 && t - p->last > 0.2) {
        fprintf(stderr, "\r%s: %3.0f %%\033[K", tool_name, part * 100);
        p->last = t;
        p->shown = 1;
    }
    return 0;
}

static void say(void *ctx, const char *file, const char *line) {
    clear_progress(ctx);
    tool_say("%s: %s", strcmp(file, "-") == 0 ? "standard input" : file, line);
}

static void print_json(const char *out, const struct convert_result *r, double seconds) {
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "database", out);
    cJSON_AddNumberToObject(o, "traces", r->traces);
    cJSON_AddNumberToObject(o, "runs", r->runs);
    cJSON_AddNumberToObject(o, "damaged", r->damaged);
    cJSON_AddNumberToObject(o, "open", r->open);
    cJSON_AddNumberToObject(o, "failed", r->failed);
    cJSON_AddNumberToObject(o, "records", (double)r->records);
    cJSON_AddNumberToObject(o, "samples", (double)r->samples);
    cJSON_AddNumberToObject(o, "lost", (double)r->lost);
    cJSON_AddNumberToObject(o, "bytes_in", (double)r->bytes_in);
    cJSON_AddNumberToObject(o, "bytes_out", (double)r->bytes_out);
    cJSON_AddNumberToObject(o, "seconds", seconds);
    char *text = cJSON_Print(o);
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(o);
}

static void print_summary(const char *out, const struct convert_result *r, double seconds) {
    char samples[TOOL_TEXT], records[TOOL_TEXT], lost[TOOL_TEXT], size[TOOL_TEXT];
    char took[TOOL_TEXT];

    tool_count(r->samples, samples);
    tool_count(r->records, records);
    tool_count(r->lost, lost);
    tool_size(r->bytes_out, size);
    tool_duration(seconds, took);
    char open[64] = "";
    if (r->open)
        snprintf(open, sizeof open, " (%u without an end: recording, or killed)", r->open);
    tool_say("%s: %u trace%s%s, %s records (%s samples, %s lost), %s, in %s", out, r->traces,
             r->traces == 1 ? "" : "s", open, records, samples, lost, size, took);
}

/* Everything after the command line. */
static int run(struct inputs *in, struct convert_options opt, int json, int quiet) {
    struct progress p = {.tty = !quiet && isatty(STDERR_FILENO)};
    struct sigaction sa = {.sa_handler = on_signal};
    struct convert_result res;

    clock_gettime(CLOCK_MONOTONIC, &p.start);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the file size is an error to report */
    live_inputs(in);
    opt.say = say;
    opt.tick = tick;
    opt.ctx = &p;
    int err = convert(in, &opt, &res);
    clear_progress(&p);
    if (err)
        return tool_fail("%s", res.error);
    double seconds = since(&p.start);
    if (json)
        print_json(opt.out, &res, seconds);
    if (!quiet)
        print_summary(opt.out, &res, seconds);
    if (!quiet && res.runs > 1)
        tool_say(
            "%s holds %u runs, and sums are over all of them: column run of trace and view runs "
            "tell them apart",
            opt.out, res.runs);
    return res.damaged || res.failed ? TOOL_PARTIAL : TOOL_OK;
}

int cmd_convert(int argc, char **argv) {
    enum { ONLY = 256, DEBUGINFOD, JSON };
    static const struct option options[] = {{"force", no_argument, NULL, 'f'},
                                            {"only", no_argument, NULL, ONLY},
                                            {"debuginfod", no_argument, NULL, DEBUGINFOD},
                                            {"json", no_argument, NULL, JSON},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct convert_options opt = {0};
    struct inputs in = {0};
    int c, only = 0, json = 0, quiet = 0, missing = 0, rc;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "fqh", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            opt.force = 1;
            break;
        case ONLY:
            only = 1;
            break;
        case DEBUGINFOD:
            opt.debuginfod = 1;
            break;
        case JSON:
            json = 1;
            break;
        case 'q':
            quiet = 1;
            break;
        case 'h':
            help();
            return TOOL_OK;
        default:
            return tool_bad_option(argv);
        }
    }
    if (argc - optind < 2)
        return tool_usage(argc - optind < 1 ? "name the traces to convert and the database to write"
                                            : "name the database to write after the traces");
    opt.out = argv[argc - 1];
    size_t len = strlen(opt.out);
    if (len > 4 && strcmp(opt.out + len - 4, ".zst") == 0)
        return tool_usage("%s has the name of a trace: name the database to write after the traces",
                          opt.out);
    for (int i = optind; i < argc - 1; i++) {
        int err = inputs_add(&in, argv[i], only ? 0 : INPUTS_SIBLINGS);
        if (!err)
            continue;
        missing = 1;
        tool_say("%s: %s", argv[i],
                 err == -ENODATA ? "a directory without traces (*.zst)" : strerror(-err));
    }
    rc = in.n ? run(&in, opt, json, quiet) : TOOL_FAILED;
    inputs_free(&in);
    return rc == TOOL_OK && missing ? TOOL_PARTIAL : rc;
}
