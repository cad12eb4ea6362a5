/* SPDX-License-Identifier: Apache-2.0 */
#include "record_attach.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../converter/output.h"
#include "../traces/proc.h"
#include "../writer/sys.h"
#include "common.h"
#include "live_target.h"
#include "progress.h"
#include "target.h"

#define STOP_MS 10000
#define LOOK_MS 100

static const struct form {
    const char *ending;
    enum { TRACE, DATABASE, PICTURE, FOLDED, PAGE, EXPORT } kind;
    enum output_kind output;
} forms[] = {
    {".zst", TRACE, OUTPUT_TRACE},
    {".db", DATABASE, OUTPUT_DATABASE},
    {".sqlite", DATABASE, OUTPUT_DATABASE},
    {".svg", PICTURE, OUTPUT_PICTURE},
    {".folded", FOLDED, OUTPUT_FOLDED},
    {".txt", FOLDED, OUTPUT_FOLDED},
    {".html", PAGE, OUTPUT_REPORT},
    /* Formats that `probing export` chooses by the file's name, such as .speedscope.json and .firefox.json. */
    {".json", EXPORT, OUTPUT_NEW},
    {".pb.gz", EXPORT, OUTPUT_NEW},
    {".pftrace", EXPORT, OUTPUT_NEW},
    {".otlp", EXPORT, OUTPUT_NEW},
    {".collapsed", EXPORT, OUTPUT_NEW},
    {".csv", EXPORT, OUTPUT_NEW},
    {".jsonl", EXPORT, OUTPUT_NEW}};

static const struct form *form_of(const char *path) {
    size_t n = strlen(path);

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t k = strlen(forms[i].ending);
        if (n > k && strcmp(path + n - k, forms[i].ending) == 0)
            return &forms[i];
    }
    return NULL;
}

/* Waits until the time is over, a signal comes or the process ends. Returns how long that was, in seconds. */
static double wait_for(const struct attach *a, struct progress *g) {
    double t = 0;
    char text[TOOL_TEXT];

    while (!progress_stopped() && proc_is_running(a->pid) &&
           (!(a->duration > 0) || t < a->duration)) {
        sys_sleep(LOOK_MS * SYS_MS);
        t = progress_seconds(g);
        if (progress_due(g))
            progress_draw(g, "recording process %d: %s", a->pid, tool_duration(t, text));
    }
    return t;
}

static int inject(const struct attach *a, const char *trace) {
    char conf[PATH_MAX + 128], *out = NULL;
    size_t n = (size_t)snprintf(conf, sizeof conf, "PROBING_TRACE=%s\n", trace);

    if (a->hz > 0)
        n += (size_t)snprintf(conf + n, sizeof conf - n, "PROBING_SAMPLE_RATE=%.9g\n", 1 / a->hz);
    if (!a->native)
        snprintf(conf + n, sizeof conf - n, "PROBING_NATIVE=0\n");
    int rc = target_inject(a->pid, conf, 0, &out), code = TOOL_OK;
    if (rc < 0)
        code = tool_fail("%s", out ? out : strerror(-rc));
    inspect_free(out);
    return code;
}

/* Runs the command that makes the output from the trace; the command reports errors itself. */
static int make(const struct form *form, char *trace, char *output) {
    char convert[] = "probing-convert", force[] = "-f", flame[] = "probing-flamegraph", to[] = "-o",
         report[] = "probing-report", folded[] = "--folded", quiet[] = "-q",
         export[] = "probing-export";

    optind = 0; /* resets getopt */
    if (form->kind == DATABASE)
        return cmd_convert(5, (char *[]){convert, force, quiet, trace, output, NULL});
    if (form->kind == FOLDED)
        return cmd_flamegraph(5, (char *[]){flame, folded, to, output, trace, NULL});
    if (form->kind == EXPORT)
        return cmd_export(5, (char *[]){export, quiet, to, output, trace, NULL});
    if (form->kind == PAGE)
        return cmd_report(4, (char *[]){report, to, output, trace, NULL});
    return cmd_flamegraph(4, (char *[]){flame, to, output, trace, NULL});
}

static int check_output(const struct form *form, const char *path) {
    char why[OUTPUT_WHY];

    if (form->kind == TRACE)
        return access(path, F_OK) != 0 ? TOOL_OK
                                       : tool_fail("cannot write %s: it is there already", path);
    return output_check(path, form->output, NULL, why) < 0 ? tool_fail("cannot write %s", why)
                                                           : TOOL_OK;
}

int record_attach(const struct attach *a) {
    char name[64], output[PATH_MAX], trace[PATH_MAX + 32], *out = NULL, text[TOOL_TEXT];
    const char *path = a->output;
    struct progress g;

    if (!path) {
        snprintf(name, sizeof name, "trace-%d.zst", a->pid);
        path = name;
    }
    const struct form *form = form_of(path);
    if (!form)
        return tool_usage(
            "-o %s: its name says what it is to be: .zst (trace), .db, .svg (flame graph), .html (report), .folded, or "
            "what probing-export writes (.json, .pb.gz, .pftrace, ...)",
            path);
    int rc = tool_absolute(path, output, sizeof output);
    if (rc < 0)
        return tool_fail("cannot write %s: %s", path, strerror(-rc));
    int code = check_output(form, output);
    if (code != TOOL_OK)
        return code;
    if (live_is_recorded(a->pid, trace))
        return tool_fail(
            "process %d is being recorded already, into %s (ask that: probing %d query, or flamegraph)",
            a->pid, trace, a->pid);
    snprintf(trace, sizeof trace, form->kind == TRACE ? "%s" : "%s.%d.zst", output, (int)getpid());
    /* Before the injection: otherwise a signal during it would end this program and leave the process recorded for ever. */
    progress_begin(&g, a->quiet);
    if ((code = inject(a, trace)) != TOOL_OK) {
        progress_end(&g);
        return code;
    }
    if (!a->quiet)
        tool_say("recording process %d%s%s; Ctrl-C ends it", a->pid, a->duration > 0 ? " for " : "",
                 a->duration > 0 ? tool_duration(a->duration, text) : "");
    g.start = tool_seconds();
    double took = wait_for(a, &g);
    rc = inspect_mail(a->pid, MAIL_STOP, "", STOP_MS, &out);
    if (rc < 0 && proc_is_running(a->pid))
        tool_say("process %d could not be told to stop: %s (probing -t %d stop)", a->pid,
                 out ? out : strerror(-rc), a->pid);
    inspect_free(out);
    progress_stopped(); /* counts a signal as seen, even one that came just now: it ends the recording, not the making of the output */
    progress_end(&g);
    if (form->kind != TRACE) {
        code = make(form, trace, output);
        if (code == TOOL_OK || code == TOOL_PARTIAL)
            unlink(trace);
        else
            tool_say("the trace is kept: %s", trace);
    }
    if (code != TOOL_FAILED && !a->quiet)
        tool_say("%s recorded in %s", tool_duration(took, text), path);
    return code;
}
