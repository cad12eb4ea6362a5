/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_convert.c - `probing-convert`: turns traces into one SQLite database (converter/convert.h does the work).
 *
 * This file has the command line, progress and the summary. live_inputs.h handles inputs whose process still writes
 * them, or died before it had written all.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../converter/convert.h"
#include "live_inputs.h"
#include "options.h"
#include "progress.h"

struct conversion {
    struct progress progress;
    double bytes; /* size of all traces */
};

static const char help[] =
    "usage: probing-convert [OPTION...] INPUT... OUT.db\n"
    "\n"
    "Turn traces into one SQLite database.\n"
    "\n"
    "INPUT is a trace file, a directory (every .zst in it and below, but what begins with a dot), or\n"
    "- for stdin, which may be several traces joined. With trace.zst come the traces of the other\n"
    "processes of its run (trace.zst.d/). A trace may still be recording, cut off or damaged: every\n"
    "good block is kept. Traces of several machines get one time, by the collectives that they share.\n"
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
    "Then:  sqlite3 OUT.db \"SELECT * FROM hot_functions LIMIT 10\"\n";

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
    progress_print(o);
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

/* Does everything that follows the command line. */
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
    if (err == -EINTR)
        return tool_fail("%s: interrupted: %s", opt.out,
                         access(opt.out, F_OK) == 0 ? "it is as it was" : "nothing was written");
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

static int only(const char *name, const char *value, void *types) {
    char bad[32];

    if (when_kinds(value, types, bad) == 0)
        return TOOL_OK;
    return tool_usage(
        "--%s %s: there is no kind '%s'; it takes samples, torch, comm, metrics, program, variables, "
        "triggers, with commas (the named files without their .d: --alone)",
        name, value, bad);
}

int cmd_convert(int argc, char **argv) {
    struct convert_options opt = {0};
    struct inputs in = {0};
    int threads = 0, alone = 0, json = 0, quiet = 0, missing, rc;
    const struct tool_option options[] = {
        OPTION_FLAG("force", 'f', &opt.force),
        OPTION_FLAG("append", 'a', &opt.append),
        OPTION_CALL("only", 0, only, &opt.types),
        OPTION_FLAG("alone", 0, &alone),
        OPTION_CALL("from", 0, option_time, &opt.since),
        OPTION_CALL("to", 0, option_time, &opt.until),
        OPTION_CALL("last", 0, option_last, &opt.since),
        OPTION_FLAG("debuginfod", 0, &opt.debuginfod),
        OPTION_WHOLE("threads", 0, &threads, 1, 64, "--threads %s: a number from 1 to 64"),
        OPTION_TEXT("clocks", 0, &opt.clocks),
        OPTION_FLAG("json", 0, &json),
        OPTION_FLAG("quiet", 'q', &quiet),
        {0}};

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    opt.threads = (unsigned)threads;
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
    missing = live_inputs_add(&in, argv + optind, argc - 1 - optind, alone ? 0 : INPUTS_SIBLINGS);
    rc = in.n ? run(&in, opt, json, quiet) : TOOL_FAILED;
    inputs_free(&in);
    return rc == TOOL_OK && missing ? TOOL_PARTIAL : rc;
}
