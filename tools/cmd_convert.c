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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../converter/convert.h"
#include "common.h"
#include "live_inputs.h"
#include "progress.h"

struct conversion {
    struct progress progress;
    double bytes; /* of all traces */
};

static void help(void) {
    puts(
        "usage: probing-convert [OPTION...] INPUT... OUT.db\n"
        "\n"
        "Turn traces into one SQLite database.\n"
        "\n"
        "INPUT is a trace file, a directory (every .zst in it and below), or - for stdin, which may be\n"
        "several traces joined. With trace.zst come the traces of the other processes of its run\n"
        "(trace.zst.d/). A trace may still be recording, cut off or damaged: every good block is kept.\n"
        "Traces of several machines get one time, by the collectives that they share.\n"
        "\n"
        "  -f, --force      replace OUT.db if it is a database of probing-convert, or empty\n"
        "  -a, --append     add to OUT.db what it does not hold yet: other traces, and those that have grown\n"
        "      --from WHEN  only what was from then on: 2026-11-22T13:05:00 (UTC, or +HH:MM),\n"
        "                   seconds since the epoch, +90s after the first record, -5min before the last\n"
        "      --to WHEN    only what was until then\n"
        "      --last TIME  the last 5min (s, min, h, d), the same as --from -5min\n"
        "      --only LIST  only samples, torch, comm, metrics, program, variables, triggers (with commas)\n"
        "      --alone      take the named files alone, without their .d directories\n"
        "      --threads N  1 to 64; without it as many as there are processors. The rows are the same\n"
        "      --clocks DB  machines that another database has keep the time that they have there\n"
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

static int tick(void *ctx, double part) {
    struct conversion *c = ctx;
    double t = progress_seconds(&c->progress);
    char rate[TOOL_TEXT], left[TOOL_TEXT];

    if (progress_due(&c->progress)) {
        int more = part > 0.02 && part < 1;
        progress_draw(&c->progress, "%3.0f %%, %s/s of trace%s%s%s", part * 100,
                      tool_size((uint64_t)(part * c->bytes / t), rate), more ? ", " : "",
                      more ? tool_duration(t * (1 - part) / part, left) : "", more ? " left" : "");
    }
    return progress_stopped();
}

static void say(void *ctx, const char *file, const char *line) {
    progress_say(&((struct conversion *)ctx)->progress, file, line);
}

static void print_json(const char *out, const struct convert_result *r, double seconds) {
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "database", out);
    cJSON_AddNumberToObject(o, "traces", r->traces);
    cJSON_AddNumberToObject(o, "runs", r->runs);
    cJSON_AddNumberToObject(o, "damaged", r->damaged);
    cJSON_AddNumberToObject(o, "open", r->open);
    cJSON_AddNumberToObject(o, "failed", r->failed);
    cJSON_AddNumberToObject(o, "there", r->there);
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
    char open[64] = "", there[64] = "";
    if (r->open)
        snprintf(open, sizeof open, " (%u without an end: recording, or killed)", r->open);
    if (r->there)
        snprintf(there, sizeof there, " (and %u that were there already)", r->there);
    tool_say("%s: %u trace%s%s%s, %s records (%s samples, %s lost), %s, in %s", out, r->traces,
             r->traces == 1 ? "" : "s", open, there, records, samples, lost, size, took);
}

/* Everything after the command line. */
static int run(struct inputs *in, struct convert_options opt, int json, int quiet) {
    struct conversion c = {0};
    struct convert_result res;

    progress_begin(&c.progress, quiet);
    live_inputs(in);
    for (size_t i = 0; i < in->n; i++) {
        struct stat st;
        if (stat(in->file[i].path, &st) == 0 && S_ISREG(st.st_mode))
            c.bytes += (double)st.st_size;
    }
    opt.say = say;
    opt.tick = tick;
    opt.ctx = &c;
    int err = convert(in, &opt, &res);
    double seconds = progress_seconds(&c.progress);
    progress_end(&c.progress);
    if (err)
        return tool_fail("%s", res.error);
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
    enum { ONLY = 256, ALONE, FROM, TO, LAST, THREADS, CLOCKS, DEBUGINFOD, JSON };
    static const struct option options[] = {{"force", no_argument, NULL, 'f'},
                                            {"append", no_argument, NULL, 'a'},
                                            {"only", required_argument, NULL, ONLY},
                                            {"alone", no_argument, NULL, ALONE},
                                            {"from", required_argument, NULL, FROM},
                                            {"to", required_argument, NULL, TO},
                                            {"last", required_argument, NULL, LAST},
                                            {"debuginfod", no_argument, NULL, DEBUGINFOD},
                                            {"threads", required_argument, NULL, THREADS},
                                            {"clocks", required_argument, NULL, CLOCKS},
                                            {"json", no_argument, NULL, JSON},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct convert_options opt = {0};
    struct inputs in = {0};
    char bad[32], *end;
    unsigned long n;
    int c, alone = 0, json = 0, quiet = 0, missing = 0, rc;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "afqh", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            opt.force = 1;
            break;
        case 'a':
            opt.append = 1;
            break;
        case ONLY:
            if (when_kinds(optarg, &opt.types, bad) != 0)
                return tool_usage(
                    "--only %s: there is no kind '%s'; it takes samples, torch, comm, metrics, program, variables, "
                    "triggers, with commas (the named files without their .d: --alone)",
                    optarg, bad);
            break;
        case ALONE:
            alone = 1;
            break;
        case FROM:
        case TO:
            if (when_parse(optarg, c == FROM ? &opt.since : &opt.until) != 0)
                return tool_usage(
                    "--%s %s: write a time as 2026-11-22T13:05:00, as seconds since the epoch, as +90s after the first "
                    "record or as -5min before the last",
                    c == FROM ? "from" : "to", optarg);
            break;
        case LAST:
            opt.since.from = WHEN_BEFORE_LAST;
            if (when_duration(optarg, &opt.since.ns) != 0)
                return tool_usage("--last %s: write a length of time as 90s, 5min or 2h", optarg);
            break;
        case THREADS:
            opt.threads = (unsigned)(n = strtoul(optarg, &end, 10));
            if (*end || end == optarg || n < 1 || n > 64)
                return tool_usage("--threads %s: a number from 1 to 64", optarg);
            break;
        case CLOCKS:
            opt.clocks = optarg;
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
    if (opt.append && opt.force)
        return tool_usage(
            "--append keeps what is in the database, --force replaces it: leave out one");
    if (opt.append && (opt.since.from || opt.until.from || opt.types))
        return tool_usage("--append takes whole traces: leave out --from, --to, --last and --only");
    if (argc - optind < 2)
        return tool_usage(argc - optind < 1 ? "name the traces to convert and the database to write"
                                            : "name the database to write after the traces");
    opt.out = argv[argc - 1];
    size_t len = strlen(opt.out);
    if (len > 4 && strcmp(opt.out + len - 4, ".zst") == 0)
        return tool_usage("%s has the name of a trace: name the database to write after the traces",
                          opt.out);
    for (int i = optind; i < argc - 1; i++) {
        int err = inputs_add(&in, argv[i], alone ? 0 : INPUTS_SIBLINGS);
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
