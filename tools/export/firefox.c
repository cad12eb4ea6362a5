/* SPDX-License-Identifier: Apache-2.0 */
/*
 * firefox.c - writes the Firefox Profiler's processed profile, version 57: one thread after the other, each with its samples, its markers and
 * tables of its own for stacks, frames and functions; then counters of the processes' memory, and a list of all strings. Markers are steps, modules,
 * collectives, spans and events; all those of a process are in its main thread.
 *
 * Times are milliseconds since the start, with six decimals. A sample's weight is its ticks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../converter/keys.h"
#include "../numbers.h"
#include "../page_json.h"
#include "events.h"
#include "samples.h"
#include "spool.h"
#include "tree.h"

enum { OTHER, PYTHON, NATIVE }; /* the categories of meta */

/* Columns of the spool. */
enum { STACK, TIME, WEIGHT, CPU, DATA, NAME, START, END, PHASE, CATEGORY };

struct firefox {
    struct export *x;
    struct export_tree *tree;
    struct export_spool spool;
    struct keys strings;
    sqlite3_stmt *samples;
    struct export_sample next; /* the next sample to write */
    int has_next;
    size_t nsamples, nmarkers;
    unsigned nthreads;
    unsigned *main_thread; /* by process: its index in "threads" */
};

/* Returns the number of a string in the list, added if it is new. */
static uint32_t string(struct firefox *f, const char *text) {
    int is_new;
    uint32_t id = keys_put(&f->strings, text, strlen(text), &is_new);

    return id ? id - 1 : 0;
}

static void put_ms(FILE *out, int64_t ns) {
    uint64_t u = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

    if (ns < 0)
        put_char(out, '-');
    put_uint(out, u / 1000000);
    put_char(out, '.');
    put_digits(out, u % 1000000, 6);
}

static FILE *column(struct firefox *f, unsigned i) {
    FILE *out = export_column(&f->spool, i);

    if (out)
        put_text(out, export_comma(&f->spool, i));
    return out;
}

/* Opens all columns. Returns 0 or -errno. */
static int open_columns(struct firefox *f) {
    for (unsigned i = STACK; i <= CATEGORY; i++) {
        if (!export_column(&f->spool, i))
            return -errno;
    }
    return 0;
}

/* ---- samples ---- */

static int next_sample(struct firefox *f) {
    int rc = export_sample(f->x, f->samples, &f->next);

    f->has_next = rc > 0;
    return rc < 0 ? rc : 0;
}

static int put_samples(struct firefox *f, const struct export_thread *t) {
    uint32_t node;
    int rc = 0;

    f->nsamples = 0;
    while (rc == 0 && f->has_next && f->next.thread == t->id) {
        if ((rc = export_tree_stack(f->tree, f->next.stack, &node)) < 0)
            break;
        put_uint(column(f, STACK), node);
        put_ms(column(f, TIME), f->next.ts - f->x->first);
        put_int(column(f, WEIGHT), f->next.count);
        put_int(column(f, CPU), f->next.cpu_us);
        f->nsamples++;
        rc = next_sample(f);
    }
    return rc;
}

/* ---- markers ---- */

static int ignore_track(void *ctx, const struct export_track *t) {
    (void)ctx;
    (void)t;
    return 0;
}

static int put_marker(void *ctx, const struct export_event *e) {
    struct firefox *f = ctx;
    FILE *data;
    struct rows_value v;

    if (e->kind == EXPORT_COUNTER)
        return 0;
    data = column(f, DATA);
    fputs("{\"type\":\"Probing\",\"name\":", data);
    page_text(data, e->name);
    fputs(",\"kind\":", data);
    page_text(data, e->category);
    for (int i = 0; i < e->nargs; i++) {
        const char *name = export_event_arg(e, i, &v);
        if (v.kind == ROWS_NULL || strcmp(name, "type") == 0)
            continue;
        fputc(',', data);
        page_text(data, name);
        fputc(':', data);
        if (v.kind == ROWS_INTEGER)
            put_int(data, v.i);
        else if (v.kind == ROWS_REAL)
            page_real(data, v.f, 17);
        else
            page_bytes(data, v.p, v.n);
    }
    fputc('}', data);
    /* All steps are one row of the marker chart. */
    put_uint(column(f, NAME), string(f, e->kind == EXPORT_STEP ? "step" : e->name));
    put_ms(column(f, START), e->ts - f->x->first);
    if (e->kind == EXPORT_MARK)
        put_text(column(f, END), "null");
    else
        put_ms(column(f, END), e->ts + e->duration - f->x->first);
    put_uint(column(f, PHASE), e->kind == EXPORT_MARK ? 0 : 1);
    put_uint(column(f, CATEGORY), OTHER);
    f->nmarkers++;
    return 0;
}

/* ---- a thread ---- */

/* Writes the thread's stacks, frames and functions, as columns. */
static int put_tables(struct firefox *f) {
    struct keys frames, functions;
    const struct export_frame *frame;
    FILE *out = f->x->out;
    uint32_t n = export_tree_nodes(f->tree), id;
    int is_new, rc = 0;
    size_t len;

    keys_init(&frames);
    keys_init(&functions);
    fprintf(out, ",\n\"stackTable\":{\"length\":%u,\"prefix\":[", n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t parent = export_tree_node(f->tree, i)->parent;
        fprintf(out, parent == EXPORT_NO_NODE ? "%snull" : "%s%u", i ? "," : "", parent);
    }
    fputs("],\"frame\":[", out);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        frame = export_tree_node(f->tree, i)->frame;
        if (!(id = keys_put(&frames, &frame, sizeof frame, &is_new)))
            rc = -ENOMEM;
        fprintf(out, "%s%u", i ? "," : "", id - 1);
    }
    fprintf(out, "]},\n\"frameTable\":{\"length\":%u,\"func\":[", frames.n);
#define FRAME(i) (*(const struct export_frame *const *)keys_key(&frames, (i) + 1, &len))
#define COLUMN(name, fmt, ...)                                                                     \
    fputs("],\"" name "\":[", out);                                                                \
    for (uint32_t i = 0; i < frames.n; i++)                                                        \
    fprintf(out, "%s" fmt, i ? "," : "", __VA_ARGS__)
    for (uint32_t i = 0; i < frames.n && rc == 0; i++) {
        frame = FRAME(i);
        int64_t function = frame ? frame->function : 0;
        if (!(id = keys_put(&functions, &function, sizeof function, &is_new)))
            rc = -ENOMEM;
        fprintf(out, "%s%u", i ? "," : "", id - 1);
    }
    COLUMN("line", "%lld", (long long)(FRAME(i) ? FRAME(i)->line : 0));
    COLUMN("category", "%d", !FRAME(i) ? OTHER : FRAME(i)->native ? NATIVE : PYTHON);
    COLUMN("address", "%d", -1);
    COLUMN("inlineDepth", "%d", 0);
    COLUMN("subcategory", "%d", 0);
    COLUMN("innerWindowID", "%d", 0);
    COLUMN("nativeSymbol", "%s", "null");
    COLUMN("column", "%s", "null");
    fprintf(out, "]},\n\"funcTable\":{\"length\":%u", functions.n);
    /* A function's values come from its first frame: functions were numbered in the order of the frames. */
    static const char *const names[] = {"name",          "fileName", "lineNumber",  "isJS",
                                        "relevantForJS", "resource", "columnNumber"};
    for (unsigned k = 0; k < sizeof names / sizeof *names; k++) {
        uint32_t done = 0;
        fprintf(out, ",\"%s\":[", names[k]);
        for (uint32_t i = 0; i < frames.n; i++) {
            frame = FRAME(i);
            int64_t function = frame ? frame->function : 0;
            if (keys_find(&functions, &function, sizeof function) != done + 1)
                continue;
            fputs(done++ ? "," : "", out);
            if (k == 0)
                fprintf(out, "%u", string(f, frame ? frame->name : EXPORT_UNREAD));
            else if (k == 1 && frame && (*frame->file || *frame->module))
                fprintf(out, "%u", string(f, *frame->file ? frame->file : frame->module));
            else if (k == 2 && frame && frame->firstline > 0)
                fprintf(out, "%lld", (long long)frame->firstline);
            else
                fputs(k == 3 || k == 4 ? "false" : k == 5 ? "-1" : "null", out);
        }
        fputc(']', out);
    }
    fputs(
        "},\n\"resourceTable\":{\"length\":0,\"lib\":[],\"name\":[],\"host\":[],\"type\":[]},"
        "\"nativeSymbols\":{\"length\":0,\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[]}}",
        out);
    keys_free(&frames);
    keys_free(&functions);
    return rc;
}

/* Writes a thread. t NULL: an entry for a process whose main thread is not known. */
static int put_thread(struct firefox *f, const struct export_process *p,
                      const struct export_thread *t) {
    static const char *const samples[] = {"stack", "time", "weight", "threadCPUDelta"};
    static const char *const markers[] = {"data",    "name",  "startTime",
                                          "endTime", "phase", "category"};
    const struct export *x = f->x;
    FILE *out = x->out;
    char name[500];
    int rc = 0, is_main = !t || t->is_main;

    f->nsamples = f->nmarkers = 0;
    export_tree_clear(f->tree);
    if (t)
        rc = put_samples(f, t);
    if (rc == 0 && is_main) {
        f->x->only = p;
        rc = export_events(f->x, ignore_track, put_marker, f);
        f->x->only = NULL;
        f->main_thread[p - x->process] = f->nthreads;
    }
    if (rc < 0)
        return rc;
    fprintf(out, "%s{\"processType\":\"default\",\"processName\":", f->nthreads++ ? ",\n" : "");
    page_text(out, export_process_name(p, name, sizeof name));
    fputs(",\"name\":", out);
    page_text(out, t ? export_thread_name(t, name, sizeof name) : "process");
    /* Processes on different machines may have the same pid: the number of the trace tells them apart. */
    fprintf(out, ",\"isMainThread\":%s,\"pid\":\"%lld.%lld\",\"tid\":%lld,\"processStartupTime\":",
            is_main ? "true" : "false", (long long)p->pid, (long long)p->id,
            (long long)(t ? t->tid : 0));
    put_ms(out, p->start - x->first);
    fputs(",\"processShutdownTime\":", out);
    put_ms(out, p->end - x->first);
    fputs(",\"registerTime\":", out);
    put_ms(out, p->start - x->first);
    fputs(
        ",\"unregisterTime\":null,\"pausedRanges\":[],\"showMarkersInTimeline\":true,\n\"samples\":{\"weightType\":\"samples\",",
        out);
    fprintf(out, "\"length\":%zu,", f->nsamples);
    rc = export_columns(&f->spool, out, STACK, samples, 4);
    fprintf(out, "},\n\"markers\":{\"length\":%zu,", f->nmarkers);
    if (rc == 0)
        rc = export_columns(&f->spool, out, DATA, markers, 6);
    fputc('}', out);
    return rc == 0 ? put_tables(f) : rc;
}

static int put_threads(struct firefox *f) {
    const struct export *x = f->x;
    int rc = export_samples(f->x, EXPORT_BY_THREAD, &f->samples);
    size_t i = 0;

    if (rc == 0)
        rc = next_sample(f);
    for (size_t k = 0; k < x->nprocesses && rc == 0; k++) {
        const struct export_process *p = &x->process[k];
        int has_main = 0;
        for (; i < x->nthreads && rc == 0 &&
               (!x->thread[i].process || x->thread[i].process->id <= p->id);
             i++) {
            const struct export_thread *t = &x->thread[i];
            has_main |= t->process == p && t->is_main;
            if (t->process == p && (t->is_main || (f->has_next && f->next.thread == t->id)))
                rc = put_thread(f, p, t);
        }
        if (rc == 0 && !has_main)
            rc = put_thread(f, p, NULL);
    }
    sqlite3_finalize(f->samples);
    return rc;
}

/* ---- around them ---- */

/* Writes the memory of each process as a counter, by its change since the row before, as the profiler's counters are defined. */
static int put_counters(struct firefox *f) {
    static const char *const names[] = {"time", "count"};
    const struct export *x = f->x;
    FILE *out = x->out;
    int rc = 0, any = 0;

    for (size_t i = 0; i < x->nprocesses && rc == 0; i++) {
        sqlite3_stmt *st = NULL;
        int64_t before = 0;
        size_t n = 0;
        f->x->only = &x->process[i];
        rc = export_prepare(
            f->x,
            "SELECT m.ts, m.rss FROM temp.export_trace e CROSS JOIN trace_file t ON t.id = e.id"
            " CROSS JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id WHERE e.process = :only AND m.ts BETWEEN :from AND :to AND m.rss IS NOT NULL ORDER BY m.ts",
            &st);
        f->x->only = NULL;
        while (rc == 0 && (rc = export_step(f->x, st)) > 0) {
            int64_t rss = sqlite3_column_int64(st, 1);
            put_ms(column(f, 0), sqlite3_column_int64(st, 0) - x->first);
            fprintf(column(f, 1), "%lld", (long long)(rss - before));
            before = rss;
            n++;
            rc = 0;
        }
        sqlite3_finalize(st);
        if (rc < 0 || !n)
            continue;
        fprintf(
            out,
            "%s{\"name\":\"memory rss\",\"category\":\"Memory\",\"description\":\"Resident memory of the process\",\"pid\":\"%lld.%lld\","
            "\"mainThreadIndex\":%u,\"samples\":{\"length\":%zu,",
            any ? ",\n" : "", (long long)x->process[i].pid, (long long)x->process[i].id,
            f->main_thread[i], n);
        rc = export_columns(&f->spool, out, 0, names, 2);
        fputs("}}", out);
        any = 1;
    }
    return rc;
}

static void put_meta(const struct export *x) {
    int64_t period = 0;

    for (size_t i = 0; i < x->nprocesses; i++) {
        if (x->process[i].period > 0 && (!period || x->process[i].period < period))
            period = x->process[i].period;
    }
    fputs("{\"meta\":{\"interval\":", x->out);
    put_ms(x->out, period ? period : 1000000);
    fputs(",\"startTime\":", x->out);
    put_ms(x->out, x->first);
    fputs(",\"profilingStartTime\":0,\"profilingEndTime\":", x->out);
    put_ms(x->out, x->last - x->first);
    fputs(",\"processType\":0,\"product\":", x->out);
    page_text(x->out, x->title ? x->title : x->process[0].command);
    fputs(
        ",\"importedFrom\":\"probing " PROBING_VERSION
        "\",\"stackwalk\":1,\"version\":31,\"preprocessedProfileVersion\":57,"
        "\"symbolicated\":true,\"symbolicationNotSupported\":true,\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,"
        "\"keepProfileThreadOrder\":true,\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"\xc2\xb5s\"},\n"
        "\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},"
        "{\"name\":\"Python\",\"color\":\"yellow\",\"subcategories\":[\"Other\"]},"
        "{\"name\":\"Native\",\"color\":\"blue\",\"subcategories\":[\"Other\"]}],\n"
        "\"markerSchema\":[{\"name\":\"Probing\",\"display\":[\"marker-chart\",\"marker-table\",\"timeline-overview\"],"
        "\"chartLabel\":\"{marker.data.name}\",\"tableLabel\":\"{marker.data.kind}: {marker.data.name}\",\"fields\":["
        "{\"key\":\"name\",\"label\":\"Name\",\"format\":\"string\"},{\"key\":\"kind\",\"label\":\"Kind\",\"format\":\"string\"},"
        "{\"key\":\"step\",\"label\":\"Step\",\"format\":\"integer\"},{\"key\":\"group\",\"label\":\"Group\",\"format\":\"string\"},"
        "{\"key\":\"seq\",\"label\":\"Number\",\"format\":\"integer\"},{\"key\":\"bytes\",\"label\":\"Size\",\"format\":\"bytes\"},"
        "{\"key\":\"data\",\"label\":\"Data\",\"format\":\"string\"},{\"key\":\"detail\",\"label\":\"Detail\",\"format\":\"string\"}]}]},\n"
        "\"libs\":[],\n\"threads\":[\n",
        x->out);
}

static int write_firefox(struct export *x) {
    struct firefox f = {.x = x, .main_thread = calloc(x->nprocesses, sizeof *f.main_thread)};
    int rc = f.main_thread ? export_tree_open(&f.tree, x) : -ENOMEM;
    size_t n;

    keys_init(&f.strings);
    if (rc == 0)
        rc = open_columns(&f);
    put_meta(x);
    if (rc == 0)
        rc = put_threads(&f);
    fputs("],\n\"counters\":[\n", x->out);
    if (rc == 0)
        rc = put_counters(&f);
    fputs("],\n\"shared\":{\"stringArray\":[\n", x->out);
    for (uint32_t i = 0; i < f.strings.n; i++) {
        const char *text = keys_key(&f.strings, i + 1, &n);
        fputs(i ? ",\n" : "", x->out);
        page_bytes(x->out, text, n);
    }
    fputs("]}}\n", x->out);
    keys_free(&f.strings);
    export_spool_free(&f.spool);
    export_tree_close(f.tree);
    free(f.main_thread);
    return rc;
}

const struct export_format export_firefox = {"firefox", ".firefox.json",
                                             "profiler.firefox.com: stacks and markers of threads",
                                             0, write_firefox};
