/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_list.c - probing-list: shows what is being recorded now. All that it shows is in the live files, which it maps
 * read-only, so no process is touched.
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

static const char help[] =
    "usage: probing list [--tree] [--json]\n"
    "\n"
    "Shows the live recordings of this user, one a line, oldest first.\n"
    "\n"
    "  -t, --tree     each below the process that started it, as far as that is recorded too;\n"
    "                 with --json: `parent`, its pid\n"
    "      --json     the same as a JSON array, with plain numbers\n"
    "  -h, --help     this text\n"
    "      --version  print the version\n"
    "\n"
    "Exit code: 0; 1 when nothing is being recorded.\n";

struct entry {
    int pid; /* in this pid namespace; 0: not visible from here */
    int32_t rank;
    int alive;
    int passive; /* the agent records nothing and only answers requests */
    int gone;    /* the process is dead and its trace was removed: nothing is left to complete */
    int parent;  /* pid of the nearest ancestor in the list, with --tree; 0: none */
    unsigned depth;
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

/* ---- the tree ---- */

/* Returns the parent's pid, or 0 where /proc does not show it. */
static int parent_of(int pid) {
    char path[64], line[256];
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "PPid: %d", &parent) != 1)
        ;
    if (f)
        fclose(f);
    return parent;
}

static int is_listed(const struct list *list, int pid) {
    for (unsigned i = 0; i < list->n; i++)
        if (list->e[i].pid == pid)
            return 1;
    return 0;
}

/* Appends the entries whose parent is `parent` to to[n..], in their order, each followed by its descendants. Returns the new n. */
static unsigned take_below(struct list *from, struct entry *to, unsigned n, int parent,
                           unsigned depth) {
    for (unsigned i = 0; i < from->n; i++) {
        struct entry *e = &from->e[i];
        if (e->depth ||
            e->parent !=
                parent) /* e->depth: taken already, as a live and a dead entry can have the same pid */
            continue;
        e->depth = depth;
        to[n++] = *e;
        if (e->pid)
            n = take_below(from, to, n, e->pid, depth + 1);
    }
    return n;
}

static int make_tree(struct list *list) {
    struct entry *sorted = calloc(list->n, sizeof *sorted);

    if (!sorted)
        return -ENOMEM;
    for (unsigned i = 0; i < list->n; i++) {
        int up = list->e[i].alive && list->e[i].pid ? parent_of(list->e[i].pid) : 0;
        while (up > 1 && !is_listed(list, up))
            up = parent_of(up);
        list->e[i].parent = up > 1 ? up : 0;
    }
    unsigned n = take_below(list, sorted, 0, 0, 1);
    /* entries that were not reached, because parents changed while they were read, come last */
    for (unsigned i = 0; i < list->n; i++)
        if (!list->e[i].depth)
            sorted[n++] = list->e[i];
    free(list->e);
    list->e = sorted;
    return 0;
}

static const char *state_name(const struct entry *e) {
    static const char *const names[] = {"starting", "recording", "stopping", "stopped", "failed"};

    if (!e->alive)
        return "dead";
    if (!e->pid) /* in a container, not visible from here */
        return "unknown";
    if (e->passive)
        return "answering";
    return e->state < sizeof names / sizeof *names ? names[e->state] : "unknown";
}

static int show(const struct list *list, int json, int tree) {
    static const char *const names[] = {"pid",     "rank",    "command", "state", "uptime",
                                        "rate_hz", "samples", "lost",    "size",  "trace",
                                        "run",     "problem", "parent"};
    static const char *const json_names[] = {"pid",     "rank",    "command", "state", "uptime_s",
                                             "rate_hz", "samples", "lost",    "bytes", "trace",
                                             "run",     "problem", "parent"};
    struct rows *r;
    unsigned dead = 0;

    if (rows_open(&r, json ? "json" : "table", stdout) < 0)
        return tool_fail("cannot show the list: no memory");
    double now = tool_seconds();
    rows_begin(r, tree && json ? 13 : 12, json ? json_names : names);
    for (unsigned i = 0; i < list->n; i++) {
        const struct entry *e = &list->e[i];
        char up[TOOL_TEXT], size[TOOL_TEXT], command[sizeof e->command + 64];
        int indent =
            tree && !json && e->depth > 1 ? 2 * (int)(e->depth < 30 ? e->depth : 30) - 4 : -1;
        snprintf(command, sizeof command, "%*s%s%s", indent > 0 ? indent : 0, "",
                 indent >= 0 ? "\\_ " : "", e->command);
        double uptime = now - (double)e->start_mono / 1e9;
        double hz = e->period_ns ? 1e9 / (double)e->period_ns : 0;

        struct rows_value v[13] = {
            e->pid ? rows_int(e->pid) : rows_null(),
            e->rank >= 0 ? rows_int(e->rank) : rows_null(),
            rows_text(command),
            rows_text(state_name(e)),
            json ? rows_real(uptime) : rows_text(tool_duration(uptime, up)),
            e->passive ? rows_null() : rows_real(hz),
            rows_int((int64_t)e->samples),
            rows_int((int64_t)e->lost),
            json ? rows_int((int64_t)e->bytes) : rows_text(tool_size(e->bytes, size)),
            e->passive ? rows_null() : rows_text(e->trace),
            *e->run ? rows_text(e->run) : rows_null(),
            *e->problem ? rows_text(e->problem) : rows_null(),
            e->parent ? rows_int(e->parent) : rows_null(),
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
    int json = 0, tree = 0, rc;
    const struct tool_option options[] = {
        OPTION_FLAG("json", 0, &json), OPTION_FLAG("tree", 't', &tree), {0}};

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    if (optind < argc)
        return tool_usage("no argument is taken, but there is '%s'", argv[optind]);
    if ((rc = live_scan(add, &list)) < 0) {
        rc = tool_fail("cannot list recordings: %s", strerror(-rc));
    } else {
        if (list.n)
            qsort(list.e, list.n, sizeof *list.e, by_start);
        if (list.n && tree && make_tree(&list) < 0)
            rc = tool_fail("cannot make the tree: no memory");
        else if (!list.n && !json)
            tool_say("nothing is being recorded by this user (start with: probing-record COMMAND, "
                     "or gdb "
                     "-p PID -ex 'probing inject')");
        else
            show(&list, json, tree);
        rc = rc > 0 ? rc : list.n ? TOOL_OK : TOOL_PARTIAL;
    }
    free(list.e);
    return rc;
}
