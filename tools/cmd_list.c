/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_list.c - probing-list: what is being recorded now, from the live files alone. No process is
 * touched: the files are mapped read-only and hold all that is shown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../writer/writer.h"
#include "host_pid.h"
#include "live_scan.h"
#include "options.h"
#include "rows.h"

static const char help[] = "usage: probing-list [--json]\n"
                           "\n"
                           "Shows the live recordings of this user, one a line, oldest first.\n"
                           "\n"
                           "      --json     the same as a JSON array, with plain numbers\n"
                           "  -h, --help     this text\n"
                           "      --version  print the version\n"
                           "\n"
                           "Exit code: 0; 1 when nothing is being recorded.\n";

struct entry {
    int pid; /* as seen from here; 0: it cannot be seen */
    int32_t rank;
    int alive;
    int passive; /* it only answers, and records nothing */
    int gone;    /* there is no trace to complete any more */
    uint32_t state;
    uint64_t start_mono, period_ns, samples, lost, bytes;
    char command[256];
    char trace[4096], problem[200], run[sizeof((struct live *)0)->run];
};

struct list {
    struct entry *e;
    unsigned n, cap;
};

static int add(const struct live_seen *seen, void *arg) {
    struct list *list = arg;
    const struct live *l = seen->l;

    if (!l) {
        tool_say("cannot read %s: %s (a recording of another version, or not finished starting)",
                 seen->path, strerror(-seen->error));
        return 0;
    }
    if (list->n == list->cap) {
        unsigned cap = list->cap ? list->cap * 2 : 16;
        struct entry *e = realloc(list->e, cap * sizeof *e);
        if (!e)
            return -ENOMEM;
        list->e = e;
        list->cap = cap;
    }
    struct entry *e = &list->e[list->n++];
    memset(e, 0, sizeof *e);
    e->pid = host_pid(l);
    e->rank = l->rank;
    e->alive = live_seen_alive(seen);
    e->state = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE);
    e->start_mono = l->start_mono;
    e->period_ns = __atomic_load_n(&l->period_ns, __ATOMIC_RELAXED);
    e->samples = __atomic_load_n(&l->samples, __ATOMIC_RELAXED);
    e->bytes = __atomic_load_n(&l->trace_bytes, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        e->lost += __atomic_load_n(&l->lost[i], __ATOMIC_RELAXED);
    memcpy(e->command, l->command, sizeof e->command - 1);
    memcpy(e->trace, l->trace_path, sizeof e->trace - 1);
    memcpy(e->run, l->run, sizeof e->run - 1);
    e->passive = !e->trace[0];
    if (e->alive)
        live_problem(l, e->problem, sizeof e->problem);
    e->gone = !e->alive && access(e->trace, F_OK) < 0 && errno == ENOENT;
    if (e->gone)
        tool_say("process %u is dead and its trace %s is gone: remove %s", l->pid, e->trace,
                 seen->path);
    return 0;
}

static int by_start(const void *a, const void *b) {
    const struct entry *x = a, *y = b;

    return x->start_mono < y->start_mono ? -1 : x->start_mono > y->start_mono;
}

static const char *state_name(const struct entry *e) {
    static const char *const names[] = {"starting", "recording", "stopping", "stopped", "failed"};

    if (!e->alive)
        return "dead";
    if (!e->pid) /* in a container that is not to be seen from here */
        return "unknown";
    if (e->passive)
        return "answering";
    return e->state < sizeof names / sizeof *names ? names[e->state] : "unknown";
}

static int show(const struct list *list, int json) {
    static const char *const names[] = {"pid",     "rank", "command", "state", "uptime", "rate_hz",
                                        "samples", "lost", "size",    "trace", "run",    "problem"};
    static const char *const json_names[] = {"pid",      "rank",    "command", "state",
                                             "uptime_s", "rate_hz", "samples", "lost",
                                             "bytes",    "trace",   "run",     "problem"};
    struct rows *r;
    unsigned dead = 0;

    if (rows_open(&r, json ? "json" : "table", stdout) < 0)
        return tool_fail("cannot show the list: no memory");
    double now = tool_seconds();
    rows_begin(r, 12, json ? json_names : names);
    for (unsigned i = 0; i < list->n; i++) {
        const struct entry *e = &list->e[i];
        char up[TOOL_TEXT], size[TOOL_TEXT];
        double uptime = now - (double)e->start_mono / 1e9;
        double hz = e->period_ns ? 1e9 / (double)e->period_ns : 0;

        struct rows_value v[12] = {
            e->pid ? rows_int(e->pid) : rows_null(),
            e->rank >= 0 ? rows_int(e->rank) : rows_null(),
            rows_text(e->command),
            rows_text(state_name(e)),
            json ? rows_real(uptime) : rows_text(tool_duration(uptime, up)),
            e->passive ? rows_null() : rows_real(hz),
            rows_int((int64_t)e->samples),
            rows_int((int64_t)e->lost),
            json ? rows_int((int64_t)e->bytes) : rows_text(tool_size(e->bytes, size)),
            e->passive ? rows_null() : rows_text(e->trace),
            *e->run ? rows_text(e->run) : rows_null(),
            *e->problem ? rows_text(e->problem) : rows_null(),
        };
        if (!json && !e->passive && hz == (double)(int64_t)hz)
            v[5] = rows_int((int64_t)hz);
        rows_row(r, v);
        dead += !e->alive && !e->gone;
    }
    rows_end(r);
    rows_close(r);
    if (dead)
        tool_say(
            "%u dead: the trace is completed from the live file by probing-convert TRACE out.db",
            dead);
    return TOOL_OK;
}

int cmd_list(int argc, char **argv) {
    struct list list = {0};
    int json = 0, rc;
    const struct tool_option options[] = {OPTION_FLAG("json", 0, &json), {0}};

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    if (optind < argc)
        return tool_usage("no argument is taken, but there is '%s'", argv[optind]);
    if ((rc = live_scan(add, &list)) < 0) {
        rc = tool_fail("cannot list recordings: %s", strerror(-rc));
    } else {
        if (list.n)
            qsort(list.e, list.n, sizeof *list.e, by_start);
        if (!list.n && !json)
            tool_say("nothing is being recorded by this user (start with: probing-record COMMAND, "
                     "or gdb "
                     "-p PID -ex 'probing inject')");
        else
            show(&list, json);
        rc = list.n ? TOOL_OK : TOOL_PARTIAL;
    }
    free(list.e);
    return rc;
}
