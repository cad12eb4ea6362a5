/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_pack.c - `probing pack`: makes traces ready to be shipped (pack.h does the work).
 *
 * This file has the command line, the choice of output files, progress and the summary. A packed trace is written under a
 * temporary name and gets its final name when it is complete.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../converter/output.h"
#include "../traces/own_file.h"
#include "../traces/run.h"
#include "live_inputs.h"
#include "options.h"
#include "pack_write.h"
#include "progress.h"

#define LEVEL 19

struct job {
    struct progress progress;
    const struct pack *p;
};

struct options {
    const char *out;
    int replace, in_place, json, quiet, is_dir;
};

static const char help[] =
    "usage: probing pack [OPTION...] TRACE|DIR... -o OUT.zst|DIR/\n"
    "       probing pack --replace|--in-place TRACE|DIR...\n"
    "\n"
    "Make traces ready to be shipped: the names of native code are looked up while its files are\n"
    "here, the files that a trace has gone on in (rotation) become one, and all is compressed\n"
    "again at a high level. Converting what was packed gives the same rows.\n"
    "\n"
    "TRACE and DIR are as for probing-convert: with trace.zst comes trace.zst.d/.\n"
    "\n"
    "  -o, --output OUT   OUT.zst: all traces in one file; a directory (an existing one, or a name\n"
    "                     that ends in /): a file for each process, except those that are packed\n"
    "                     there already. Nothing is written over\n"
    "      --replace      each file takes the place of what it was packed from, once it is whole; of a\n"
    "                     trace in several files (rotation) the last one, and the others go.\n"
    "                     Damaged ones and those that are still written stay as they are\n"
    "      --in-place     only add the names of native code to each file, at its end\n"
    "  -l, --level N      zstd level, 1 to 22 (19)\n"
    "      --no-symbols   look up no names: those that are in the traces stay\n"
    "      --debuginfod   let libdw fetch debug information over the network (DEBUGINFOD_URLS)\n"
    "      --json         print a summary as JSON on stdout\n"
    "  -q, --quiet        no summary line, no progress\n"
    "  -h, --help         this text\n"
    "      --version      print the version\n"
    "\n"
    "Exit status: 0 done; 1 done, but an input was damaged or could not be used, or the work was\n"
    "stopped after the first traces (the same command goes on); 2 wrong usage;\n"
    "3 nothing was written.\n";

static int tick(void *ctx) {
    struct job *g = ctx;
    char in[TOOL_TEXT], out[TOOL_TEXT];

    if (progress_due(&g->progress))
        progress_draw(&g->progress, "%s in, %s out", tool_size(g->p->bytes_in, in),
                      tool_size(g->p->bytes_out, out));
    return progress_stopped();
}

static void say(void *ctx, const char *path, const char *line) {
    progress_say(&((struct job *)ctx)->progress, path, line);
}

/* ---- where it goes ---- */

/* done: how many of the `of` traces or files were finished before. Returns the exit code. */
static int failed(const char *path, int rc, size_t done, size_t of) {
    char so_far[160] = "nothing was changed";

    if (done)
        snprintf(so_far, sizeof so_far,
                 "%zu of %zu are packed, each of them whole; the same command packs the others",
                 done, of);
    if (rc == -EINTR)
        tool_say("%s: stopped: %s", path, so_far);
    else if (rc == -ESTALE)
        tool_say("%s: not written, because an input changed", path);
    else
        tool_say("cannot write %s: %s (%s)", path, strerror(-rc),
                 rc == -EEXIST ? "nothing is written over: choose another name" : so_far);
    return done ? TOOL_PARTIAL : TOOL_FAILED;
}

/* Packs all processes into one file. */
static int into_file(struct pack *p, const struct options *o) {
    char temporary[PATH_MAX];
    int fd = pack_file_new(o->out, temporary), rc = fd < 0 ? fd : 0;

    for (size_t i = 0; !rc && i < p->n; i++)
        rc = pack_process(p, &p->process[i], fd);
    if (fd >= 0)
        rc = pack_file_done(fd, rc, temporary, o->out, 0);
    return rc ? failed(o->out, rc, 0, 0) : 0;
}

/* Finds a name in the output directory that no file has. Returns 0; 1: a file there has the packed trace already; or -errno. */
static int free_name(const struct options *o, const struct pack_process *proc,
                     char path[PATH_MAX]) {
    const char *slash = o->out[strlen(o->out) - 1] == '/' ? "" : "/";
    char name[300] = "trace";

    if (*proc->key)
        run_process_name(proc->host, proc->rank, proc->pid, name, sizeof name);
    for (unsigned k = 1; k < 10000; k++) {
        int n = k == 1 ? snprintf(path, PATH_MAX, "%s%s%s.zst", o->out, slash, name)
                       : snprintf(path, PATH_MAX, "%s%s%s-%u.zst", o->out, slash, name, k);
        if (n >= PATH_MAX)
            return -ENAMETOOLONG;
        if (access(path, F_OK) < 0)
            return 0;
        int is_there = pack_is_packed(proc, path);
        if (is_there)
            return is_there;
    }
    return -ENOSPC;
}

/* Packs each process into a file of its own. What an earlier pack has left complete there is not done again, so that one that was stopped can go on. */
static int into_directory(struct pack *p, const struct options *o) {
    char temporary[PATH_MAX], path[PATH_MAX];

    int made = own_dir_make(o->out, 0700), rc = made < 0 ? made : 0;
    for (size_t i = 0; !rc && i < p->n; i++) {
        if ((rc = free_name(o, &p->process[i], path)) > 0) {
            p->there++;
            for (size_t k = 0; k < p->process[i].n; k++)
                p->bytes_in -= p->process[i].part[k].bytes;
        }
        if (rc == 0) {
            size_t written = p->written;
            uint64_t bytes_out = p->bytes_out;
            int fd = pack_file_new(path, temporary);
            rc = fd < 0 ? fd : pack_process(p, &p->process[i], fd);
            if (fd >= 0)
                rc = pack_file_done(fd, rc, temporary, path, 0);
            if (rc) { /* the file is gone */
                p->written = written;
                p->bytes_out = bytes_out;
            }
        }
        rc = rc == -ESTALE || rc > 0 ? 0 : rc;
        if (!rc && p->tick(p->ctx))
            rc = -EINTR;
    }
    return rc ? failed(o->out, rc, p->written + p->there, p->n) : 0;
}

/* For --in-place: only adds the names of native code to each trace. */
static int add_names(struct pack *all, const struct inputs *in, struct job *g, int debuginfod) {
    struct complete c;
    int rc = complete_init(&c, debuginfod, tick, g);

    for (size_t i = 0; !rc && i < in->n; i++) {
        const char *path = in->file[i].path;
        struct stat before, after;
        int err = stat(path, &before) < 0 ? -errno : complete_trace(&c, path);
        if (!err && stat(path, &after) == 0) {
            all->written++;
            all->bytes_in += (uint64_t)before.st_size;
            all->bytes_out += (uint64_t)after.st_size;
        } else if (err == -EBUSY || err == -ENOTSUP || err == -EILSEQ || err == -EBADMSG ||
                   err == -ENODATA || err == -ENOMSG || err == -EPROTONOSUPPORT) {
            say(g, path,
                err == -EBUSY ? "another process writes it: it stays as it is"
                : err == -ENOTSUP
                    ? "it has no end, a torn one, or is several traces joined: it stays as it "
                      "is (-o makes a new file)"
                    : reader_strerror(err));
            all->failed++;
        } else {
            progress_clear(&g->progress);
            rc = failed(path, err, all->written, in->n);
        }
    }
    complete_free(&c);
    return rc;
}

/* ---- the command ---- */

static void summary(const struct pack *p, const struct inputs *in, const struct options *o,
                    double seconds, int stopped) {
    char before[TOOL_TEXT], after[TOOL_TEXT], took[TOOL_TEXT], there[64] = "";

    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        if (o->out)
            cJSON_AddStringToObject(j, "output", o->out);
        cJSON_AddNumberToObject(j, "files", (double)in->n);
        cJSON_AddNumberToObject(j, "traces", (double)p->written);
        cJSON_AddNumberToObject(j, "there", (double)p->there);
        cJSON_AddBoolToObject(j, "stopped", stopped);
        cJSON_AddNumberToObject(j, "damaged", p->damaged);
        cJSON_AddNumberToObject(j, "failed", p->failed);
        cJSON_AddNumberToObject(j, "bytes_in", (double)p->bytes_in);
        cJSON_AddNumberToObject(j, "bytes_out", (double)p->bytes_out);
        cJSON_AddNumberToObject(j, "seconds", seconds);
        progress_print(j);
    }
    if (p->there)
        snprintf(there, sizeof there, " (and %zu that were there already)", p->there);
    if (!o->quiet && !stopped)
        tool_say("%s%s%zu trace%s%s of %zu file%s, %s before, %s after, in %s",
                 o->out ? o->out : "", o->out ? ": " : "", p->written, p->written == 1 ? "" : "s",
                 there, in->n, in->n == 1 ? "" : "s", tool_size(p->bytes_in, before),
                 tool_size(p->bytes_out, after), tool_duration(seconds, took));
}

static int run(struct pack *p, struct inputs *in, struct options *o) {
    struct job g = {.p = p};
    double seconds;
    int rc = 0;

    progress_begin(&g.progress, o->quiet);
    live_inputs(in);
    p->say = say;
    p->tick = tick;
    p->ctx = &g;
    if (o->in_place) {
        rc = add_names(p, in, &g, p->debuginfod);
    } else if (o->replace) {
        const char *at = "";
        rc = pack_replace(p, in, &at);
        if (rc) {
            progress_clear(&g.progress);
            rc = failed(at, rc, p->written, in->n);
        }
    } else {
        rc = pack_find(p, in);
        if (rc)
            rc = failed(o->out, rc, 0, 0);
        else if (!p->n)
            rc = tool_fail("no input could be used: nothing was written");
        else
            rc = o->is_dir ? into_directory(p, o) : into_file(p, o);
    }
    p->ctx = NULL;
    seconds = progress_seconds(&g.progress);
    progress_end(&g.progress);
    if (!p->written && !p->there)
        return TOOL_FAILED;
    if (!rc || rc == TOOL_PARTIAL)
        summary(p, in, o, seconds, rc);
    return rc ? rc : p->damaged || p->failed ? TOOL_PARTIAL : TOOL_OK;
}

/* Checks where the output is to go: -o, --replace or --in-place. Returns 0, or the exit code. */
static int check_output(struct options *o) {
    struct stat st;
    size_t n = o->out ? strlen(o->out) : 0;

    if (o->in_place + o->replace + (o->out != NULL) != 1)
        return tool_usage(
            o->out ? "-o writes new files, --replace and --in-place change the old: name one"
                   : "name where to write with -o, or --replace, or --in-place");
    if (!o->out)
        return 0;
    if (!n || strcmp(o->out, "-") == 0)
        return tool_usage("name a file or directory to write with -o");
    int there = lstat(o->out, &st) == 0;
    o->is_dir = o->out[n - 1] == '/' || (there && S_ISDIR(st.st_mode));
    if (there && !o->is_dir)
        return tool_fail("%s exists: nothing is written over (choose another name)", o->out);
    return 0;
}

int cmd_pack(int argc, char **argv) {
    struct pack p = {.level = LEVEL, .symbols = 1};
    struct options o = {0};
    struct inputs in = {0};
    const struct tool_option options[] = {
        OPTION_TEXT("output", 'o', &o.out),
        OPTION_FLAG("replace", 0, &o.replace),
        OPTION_FLAG("in-place", 0, &o.in_place),
        OPTION_WHOLE("level", 'l', &p.level, 1, 22, "-l %s: the level must be 1 to 22"),
        OPTION_BITS("no-symbols", 0, &p.symbols, 0),
        OPTION_FLAG("debuginfod", 0, &p.debuginfod),
        OPTION_FLAG("json", 0, &o.json),
        OPTION_FLAG("quiet", 'q', &o.quiet),
        {0}};
    int rc, missing;

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    if (optind == argc)
        return tool_usage("name the traces to pack");
    if ((rc = check_output(&o)))
        return rc;
    for (int i = optind; i < argc; i++) {
        if (strcmp(argv[i], "-") == 0)
            return tool_usage("standard input cannot be packed: name files");
    }
    missing = live_inputs_add(&in, argv + optind, argc - optind, INPUTS_SIBLINGS);
    rc = in.n ? run(&p, &in, &o) : TOOL_FAILED;
    pack_free(&p);
    inputs_free(&in);
    return rc == TOOL_OK && missing ? TOOL_PARTIAL : rc;
}
