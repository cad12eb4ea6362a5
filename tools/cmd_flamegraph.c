/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_flamegraph.c - probing-flamegraph: shows where the time goes, as a picture (flame_svg.c) or as text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db_notes.h"
#include "flame_diff.h"
#include "new_file.h"
#include "open_db.h"
#include "options.h"
#include "running.h"

static const char help[] =
    "usage: probing flamegraph [OPTION...] DB|TRACE...\n"
    "       probing flamegraph --diff [OPTION...] A B\n"
    "\n"
    "Draws where the time goes: a self-contained SVG with zoom and search, for any browser.\n"
    "\n"
    "  -o, --output FILE   write to FILE; - is standard output (default)\n"
    "      --cpu           only samples taken while the thread was on a CPU\n"
    "      --idle          also what is idle: threads other than the main one that wait off a CPU, and\n"
    "                      helper processes (loader workers, launchers) that do\n"
    "      --python        only Python frames\n"
    "      --lines         the line that the innermost Python function is at, as a frame of its own\n"
    "      --all-frames    the interpreter's own frames between others too (left out otherwise)\n"
    "      --thread NAME   only threads of this name or thread id; main: the main threads\n"
    "      --pid PID       only this process\n"
    "      --rank RANK     only the process of this rank\n"
    "      --processes     each process has a frame of its own (all are one picture otherwise)\n"
    "      --run RUN       only this run, where the input holds several (view runs)\n"
    "      --title TEXT    title of the picture (default: the recorded command)\n"
    "      --icicle        the root at the top\n"
    "      --diff          of two recordings, A and B: width is time in B, colour how each frame's share\n"
    "                      of all time changed; grey is what may be chance\n"
    "      --folded        text: one line a stack, \"a;b;c 12\", outermost frame first\n"
    "      --no-cache      convert traces anew, and keep nothing\n"
    "  -h, --help          this text\n"
    "      --version       print the version\n"
    "\n"
    "Exit code: 0; 1 a damaged trace was read in part, or no sample fits; 2 usage; 3 nothing could "
    "be\n"
    "read or written.\n"
    "\n"
    "  probing flamegraph -o flame.svg out.db\n"
    "  probing flamegraph --diff -o diff.svg before.db after.db\n";

struct request {
    struct fold fold;
    const char *output, *title;
    int icicle, folded, flags, diff;
};

struct to_draw {
    const struct flame *flame;
    const struct request *request;
};

static int parse(int argc, char **argv, struct request *r) {
    struct fold *f = &r->fold;
    const struct tool_option options[] = {
        OPTION_CALL("output", 'o', option_output, &r->output),
        OPTION_FLAG("cpu", 0, &f->cpu),
        OPTION_FLAG("idle", 0, &f->idle),
        OPTION_FLAG("python", 0, &f->python),
        OPTION_FLAG("lines", 0, &f->lines),
        OPTION_FLAG("all-frames", 0, &f->all_frames),
        OPTION_TEXT("thread", 0, &f->thread),
        OPTION_CALL("pid", 0, option_id, &f->pid),
        OPTION_CALL("rank", 0, option_id, &f->rank),
        OPTION_FLAG("processes", 0, &f->split),
        OPTION_TEXT("run", 0, &f->run),
        OPTION_TEXT("title", 0, &r->title),
        OPTION_FLAG("icicle", 0, &r->icicle),
        OPTION_FLAG("diff", 0, &r->diff),
        OPTION_FLAG("folded", 0, &r->folded),
        OPTION_BITS("no-cache", 0, &r->flags, DB_NO_CACHE),
        {0},
    };
    int rc = tool_options(argc, argv, help, options);

    if (rc == TOOL_OK && optind == argc)
        rc = tool_usage("a database or a trace is needed");
    if (rc == TOOL_OK && r->diff &&
        (argc - optind != 2 || r->folded || r->fold.lines || r->fold.split))
        rc = tool_usage(
            "--diff draws two recordings, A and B, without --folded, --lines and --processes");
    return rc;
}

static void subtitle(const struct fold *fold, char *buf, size_t n) {
    char count[TOOL_TEXT], time[TOOL_TEXT];
    size_t at = 0;

    if (fold->processes > 1)
        at += (size_t)snprintf(buf + at, n - at, "%u processes%s", fold->processes,
                               fold->split ? "" : " as one");
    else if (fold->first_rank >= 0)
        at += (size_t)snprintf(buf + at, n - at, "%s, pid %lld, rank %lld", fold->host,
                               (long long)fold->first_pid, (long long)fold->first_rank);
    else
        at += (size_t)snprintf(buf + at, n - at, "%s, pid %lld", fold->host,
                               (long long)fold->first_pid);
    at += (size_t)snprintf(buf + at, n - at, " \xc2\xb7 %s recorded",
                           tool_duration(fold->seconds, time));
    at +=
        (size_t)snprintf(buf + at, n - at, " \xc2\xb7 %s samples", tool_count(fold->weight, count));
    if (fold->tick > 0)
        at += (size_t)snprintf(buf + at, n - at, " at %g Hz",
                               (double)(int64_t)(1e3 / fold->tick + 0.5) / 1e3);
    snprintf(buf + at, n - at, "%s%s%s%s",
             fold->cpu    ? " \xc2\xb7 on CPU only"
             : fold->idle ? ""
                          : " \xc2\xb7 without idle threads",
             fold->python ? " \xc2\xb7 Python frames only" : "",
             fold->thread ? " \xc2\xb7 thread " : "", fold->thread ? fold->thread : "");
}

static int write_out(void *ctx, FILE *out) {
    const struct to_draw *d = ctx;
    const struct request *r = d->request;
    const struct flame *f = d->flame;
    char under[600];
    struct flame_picture picture = {
        .title = r->title ? r->title : r->fold.command,
        .subtitle = under,
        .tick = r->fold.tick,
        .least = 0.0005, /* half a pixel: narrower frames are not drawn */
        .icicle = r->icicle,
    };

    subtitle(&r->fold, under, sizeof under);
    if (r->folded)
        return flame_write_folded(f, out);
    flame_write_svg(f, &picture, out);
    return 0;
}

static int draw(sqlite3 *db, struct request *r) {
    struct flame *f;
    int rc;

    if (flame_new(&f) < 0)
        return tool_fail("cannot draw: no memory");
    rc = fold_samples(f, db, &r->fold);
    if (rc != SQLITE_OK) {
        rc = tool_fail("cannot read the samples: %s (is it a database made by probing-convert?)",
                       fold_why(db, rc));
    } else if (flame_finish(f) < 0) {
        rc = tool_fail("cannot draw: no memory");
    } else if (!r->fold.weight) {
        tool_say("there is no sample to draw%s",
                 r->fold.cpu || r->fold.thread || r->fold.pid >= 0 || r->fold.rank >= 0 ||
                         r->fold.run
                     ? ": none fits the options"
                 : r->fold.idle ? ""
                                : ": all threads are idle (--idle draws them)");
        rc = TOOL_PARTIAL;
    } else {
        struct to_draw what = {f, r};
        rc = r->output ? new_file(r->output, write_out, &what) : write_out(&what, stdout);
        if (rc < 0)
            rc = tool_fail("cannot write %s: %s", r->output ? r->output : "the picture",
                           strerror(-rc));
    }
    flame_free(f);
    return rc;
}

/* Draws the difference of two recordings as one picture. */
static int draw_two(char **paths, struct request *r) {
    struct flame_diff d = {
        .fold = r->fold, .output = r->output, .title = r->title, .icicle = r->icicle};
    int code = TOOL_OK, damaged = TOOL_OK;

    for (int i = 0; i < 2 && (code == TOOL_OK || code == TOOL_PARTIAL); i++) {
        d.side[i].name = paths[i];
        d.side[i].run = r->fold.run;
        d.side[i].rank = r->fold.rank;
        code = db_open(&d.side[i].db, paths + i, 1, r->flags);
        damaged = code == TOOL_PARTIAL ? code : damaged;
    }
    for (int i = 0; i < 2; i++)
        if (d.side[0].db && d.side[1].db)
            running_note(d.side[i].db);
    if (d.side[0].db && d.side[1].db)
        code = flame_diff_draw(&d);
    sqlite3_close(d.side[0].db);
    sqlite3_close(d.side[1].db);
    return code != TOOL_OK ? code : damaged;
}

int cmd_flamegraph(int argc, char **argv) {
    struct request r = {.fold = {.pid = -1, .rank = -1}};
    sqlite3 *db;
    int rc, code;

    if ((rc = parse(argc, argv, &r)) != TOOL_OK)
        return rc;
    if (!r.output && !r.folded && isatty(STDOUT_FILENO))
        return tool_usage(
            "a picture is not for the terminal: give -o FILE.svg, or --folded for text");
    if (r.output && (rc = new_file_allowed(r.output, r.folded ? OUTPUT_FOLDED : OUTPUT_PICTURE,
                                           argv + optind, argc - optind)) != TOOL_OK)
        return rc;
    if (r.diff)
        return draw_two(argv + optind, &r);
    code = db_open(&db, argv + optind, argc - optind, r.flags);
    if (!db)
        return code;
    running_note(db);
    if (!r.fold.run)
        db_note_runs(db, "--run RUN draws one of them");
    rc = draw(db, &r);
    sqlite3_close(db);
    return rc != TOOL_OK ? rc : code;
}
