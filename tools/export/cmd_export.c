/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_export.c - `probing export`: writes traces as files for other viewers (export.h), or as a Parquet data set (parquet.h). */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../db_notes.h"
#include "../new_file.h"
#include "../open_db.h"
#include "../options.h"
#include "export.h"
#include "parquet.h"

static const char help[] =
    "usage: probing export --format FORMAT [OPTION...] DB|TRACE...\n"
    "       probing export --parquet DIR [OPTION...] TRACE...|OUT.db\n"
    "\n"
    "Writes a recording as other people's viewers read it, or traces as a Parquet data set.\n"
    "\n"
    "      --format FORMAT  one of those below (default: what the name after -o ends with)\n"
    "  -o, --output FILE    write to FILE; - is standard output (default)\n"
    "  -f, --force          replace FILE if it is there\n"
    "      --last TIME, --from WHEN, --to WHEN\n"
    "                       only the last 5min (s, min, h, d), only from then on, until then\n"
    "                       (probing-convert --help says how to write WHEN)\n"
    "      --ranks LIST     only these ranks: 0,3 or 0-7\n"
    "      --pid PID        only this process\n"
    "      --run RUN        only this run, where the input holds several (view runs)\n"
    "      --cpu            only samples taken while the thread was on a CPU\n"
    "      --python         only Python frames\n"
    "      --table NAME     of csv and jsonl: the rows of this view (default: samples)\n"
    "      --title TEXT     title, where the format has one (default: the recorded command)\n"
    "      --no-cache       convert traces anew, and keep nothing\n"
    "      --parquet DIR    a folder for each table, by run and rank, sorted by time, and the views as\n"
    "                       scripts, for DuckDB, Spark, ClickHouse, Polars and pandas. A trace that is in\n"
    "                       DIR and has not grown is not written again\n"
    "      --alone          with --parquet: the named files alone, without their .d directories\n"
    "      --json           with --parquet: print a summary as JSON on stdout\n"
    "  -q, --quiet          no progress, no summary line\n"
    "  -h, --help           this text\n"
    "      --version        print the version\n"
    "\n"
    "Formats:\n";
static const char help_end[] =
    "\n"
    "--parquet needs python3 (or PROBING_PYTHON) with pyarrow: pip install pyarrow.\n"
    "Exit code: 0; 1 a trace was damaged and the rest is there, or nothing fits the options; 2 usage; 3\n"
    "nothing could be read or written.\n"
    "\n"
    "  probing export -o job.json node*/\n"
    "  probing export --format collapsed --ranks 0-3 --last 5min node*/ | flamegraph.pl > flame.svg\n"
    "  probing export --parquet run1 node*/\n"
    "  duckdb -init run1/views.duckdb.sql -c \"SELECT func, sum(seconds) FROM samples GROUP BY 1\"\n";

struct request {
    struct export x;
    struct export_choice choice;
    struct parquet parquet;
    struct db_part part;
    const struct export_format *format;
    const char *output; /* NULL: standard output */
    int flags, force;
};

static const char *whole_help(void) {
    static char text[8192];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", help);

    for (size_t i = 0; export_formats[i] && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "  %-12s %s%s%s%s\n",
                               export_formats[i]->name, export_formats[i]->what,
                               export_formats[i]->suffix ? " (*" : "",
                               export_formats[i]->suffix ? export_formats[i]->suffix : "",
                               export_formats[i]->suffix ? ")" : "");
    if (at < sizeof text)
        snprintf(text + at, sizeof text - at, "%s", help_end);
    return text;
}

static int bad_format(const char *name) {
    char list[300] = "";

    for (size_t i = 0, at = 0; export_formats[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "",
                               export_formats[i]->name);
    return name ? tool_usage("--format %s: it is %s", name, list)
                : tool_usage("say what to write: --format FORMAT (%s), or --parquet DIR", list);
}

static int parse(int argc, char **argv, struct request *r) {
    const char *format = NULL;
    const struct tool_option options[] = {
        OPTION_TEXT("format", 0, &format),
        OPTION_CALL("output", 'o', option_output, &r->output),
        OPTION_FLAG("force", 'f', &r->force),
        OPTION_CALL("from", 0, option_time, &r->part.since),
        OPTION_CALL("to", 0, option_time, &r->part.until),
        OPTION_CALL("last", 0, option_last, &r->part.since),
        OPTION_TEXT("ranks", 0, &r->choice.ranks),
        OPTION_CALL("pid", 0, option_id, &r->choice.pid),
        OPTION_TEXT("run", 0, &r->choice.run),
        OPTION_FLAG("cpu", 0, &r->x.cpu),
        OPTION_FLAG("python", 0, &r->x.python),
        OPTION_TEXT("title", 0, &r->x.title),
        OPTION_TEXT("table", 0, &r->x.table),
        OPTION_BITS("no-cache", 0, &r->flags, DB_NO_CACHE),
        OPTION_TEXT("parquet", 0, &r->parquet.folder),
        OPTION_FLAG("alone", 0, &r->parquet.alone),
        OPTION_FLAG("json", 0, &r->parquet.json),
        OPTION_FLAG("quiet", 'q', &r->parquet.quiet),
        {0},
    };
    int rc = tool_options(argc, argv, whole_help(), options);

    if (rc != TOOL_OK)
        return rc;
    if (r->parquet.folder && format)
        return tool_usage("--parquet DIR is a format of its own: leave out --format");
    r->format = format      ? export_format_of(format)
                : r->output ? export_format_by_suffix(r->output)
                            : NULL;
    if (!r->parquet.folder && !r->format)
        return bad_format(format);
    if (optind == argc)
        return tool_usage("name the traces to write, or a database of them");
    if (!r->parquet.folder && !r->output && r->format->binary && isatty(STDOUT_FILENO))
        return tool_usage("%s is not for the terminal: give -o FILE", r->format->name);
    return TOOL_OK;
}

/* Sets the time that was asked for, if the input is a database, which holds all of the time. */
static int find_time(struct request *r) {
    const struct db_part *part = &r->part;
    sqlite3_stmt *st = NULL;
    int rc = export_prepare(&r->x, "SELECT min(start_ts), max(end_ts) FROM trace_file", &st);

    if (rc == 0 && (rc = export_step(&r->x, st)) > 0) {
        int64_t first = sqlite3_column_int64(st, 0), last = sqlite3_column_int64(st, 1);
        if (part->since.from != WHEN_NOT)
            r->x.from = when_utc(&part->since, first, last);
        if (part->until.from != WHEN_NOT)
            r->x.to = when_utc(&part->until, first, last);
        rc = 0;
    }
    sqlite3_finalize(st);
    return rc;
}

static int write_out(void *ctx, FILE *out) {
    struct request *r = ctx;

    r->x.out = out;
    int rc = r->format->write(&r->x);
    if (rc == 0 && fflush(out) != 0)
        rc = -errno;
    return rc;
}

static int export_to(struct request *r) {
    int rc = find_time(r), stopped;

    progress_begin(&r->x.progress, r->parquet.quiet);
    if (rc == 0)
        rc = export_begin(&r->x, &r->choice);
    int nobody = rc == 0 && !r->x.nprocesses;
    if (rc == 0 && !nobody)
        rc = r->output ? new_file(r->output, write_out, r) : write_out(r, stdout);
    stopped = progress_stopped();
    progress_end(&r->x.progress);
    if (rc == -EINTR && stopped)
        raise(stopped);
    export_end(&r->x);
    if (nobody) {
        tool_say("there is nothing to write: no process fits the options");
        return TOOL_PARTIAL;
    }
    if (rc == -EINVAL && *r->x.why)
        return tool_usage("%s", r->x.why);
    if (rc == 0 || ferror(stdout)) /* tool_end() reports the latter */
        return rc == 0 ? TOOL_OK : TOOL_FAILED;
    return tool_fail("cannot write %s: %s", r->output ? r->output : r->format->name,
                     *r->x.why ? r->x.why : strerror(-rc));
}

int cmd_export(int argc, char **argv) {
    static const struct db_part all = {.since.from = WHEN_NOT, .until.from = WHEN_NOT};
    struct request r = {
        .x = {.from = INT64_MIN, .to = INT64_MAX, .out = stdout}, .choice.pid = -1, .part = all};
    int rc = parse(argc, argv, &r), code;

    argv += optind;
    argc -= optind;
    if (rc != TOOL_OK)
        return rc;
    if (r.parquet.folder)
        return export_parquet(&r.parquet, argv, argc);
    if (r.output &&
        (rc = new_file_allowed(r.output, r.force ? OUTPUT_ANY : OUTPUT_NEW, argv, argc)) != TOOL_OK)
        return rc;
    /* Of traces, only the time that was asked for is read. */
    int is_database = argc == 1 && db_is_database(argv[0]);
    code = db_open_part(&r.x.db, argv, argc, r.flags, is_database ? &all : &r.part);
    if (!r.x.db)
        return code;
    if (!is_database)
        r.part = all;
    if (!r.choice.run)
        db_note_runs(r.x.db, "--run RUN writes one of them");
    rc = export_to(&r);
    sqlite3_close(r.x.db);
    return rc != TOOL_OK ? rc : code;
}
