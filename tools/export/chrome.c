/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chrome.c - writes the Trace Event Format as JSON, for chrome://tracing, Perfetto's viewer, speedscope and HTA: complete events (X) for slices,
 * flows (s, t, f) from rank to rank, counters (C), instants (i), and the samples as the format's "samples" and "stackFrames".
 *
 * Times are microseconds with three decimals since baseTimeNanoseconds, as a double cannot hold such times since 1970. pid is the number of the
 * process's trace, as ranks on different machines may have the same process id. Each track is a thread of its own, after the recorded threads.
 */
#include <string.h>

#include "../numbers.h"
#include "../page_json.h"
#include "events.h"
#include "samples.h"
#include "tree.h"

struct chrome {
    struct export *x;
    const char *comma;
};

/* Writes a time in microseconds. key: all that stands before the number. */
static void put_us(FILE *out, const char *key, int64_t ns) {
    uint64_t u = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

    put_text(out, key);
    if (ns < 0)
        put_char(out, '-');
    put_uint(out, u / 1000);
    put_char(out, '.');
    put_digits(out, u % 1000, 3);
}

static void begin(struct chrome *c, const char *phase, int64_t pid) {
    FILE *out = c->x->out;

    put_text(out, c->comma);
    put_text(out, "{\"ph\":\"");
    put_text(out, phase);
    put_text(out, "\",\"pid\":");
    put_int(out, pid);
    c->comma = ",\n";
}

static void put_key_text(FILE *out, const char *key, const char *text) {
    put_text(out, ",\"");
    put_text(out, key);
    put_text(out, "\":");
    page_text(out, text);
}

static uint64_t thread_tid(const struct export *x, const struct export_thread *t) {
    return (uint64_t)(t - x->thread) + 1;
}

static uint64_t track_tid(const struct export *x, const struct export_track *t) {
    return x->nthreads + t->id;
}

static void name_thread(struct chrome *c, int64_t pid, uint64_t tid, const char *name,
                        int64_t order) {
    FILE *out = c->x->out;

    begin(c, "M", pid);
    fprintf(out,
            ",\"tid\":%llu,\"name\":\"thread_name\",\"args\":{\"name\":", (unsigned long long)tid);
    page_text(out, name);
    fputs("}}", out);
    begin(c, "M", pid);
    fprintf(out, ",\"tid\":%llu,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%lld}}",
            (unsigned long long)tid, (long long)order);
}

static void put_processes(struct chrome *c) {
    const struct export *x = c->x;
    char name[500], text[420];

    for (size_t i = 0; i < x->nprocesses; i++) {
        const struct export_process *p = &x->process[i];
        begin(c, "M", p->id);
        fputs(",\"name\":\"process_name\",\"args\":{\"name\":", x->out);
        page_text(x->out, export_process_name(p, name, sizeof name));
        fputs("}}", x->out);
        begin(c, "M", p->id);
        fprintf(x->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%lld}}",
                (long long)(p->rank >= 0 ? p->rank : (int64_t)(1000000 + i)));
    }
    for (size_t i = 0; i < x->nthreads; i++) {
        const struct export_thread *t = &x->thread[i];
        if (!t->process)
            continue;
        snprintf(name, sizeof name, "%s (%lld)", export_thread_name(t, text, sizeof text),
                 (long long)t->tid);
        name_thread(c, t->process->id, i + 1, name, 100 + (int64_t)i);
    }
}

static int put_track(void *ctx, const struct export_track *t) {
    struct chrome *c = ctx;
    char name[500], thread[400], lane[24] = "";

    if (t->kind == EXPORT_COUNTER)
        return 0; /* counters belong to the process, not to a thread */
    if (t->lane)
        snprintf(lane, sizeof lane, " +%u", t->lane);
    snprintf(name, sizeof name, "%.200s%s%s%s", t->name,
             t->thread && t->kind != EXPORT_COLLECTIVE ? ", " : "",
             t->thread && t->kind != EXPORT_COLLECTIVE ? export_thread_name(t->thread, thread, 200)
                                                       : "",
             lane);
    name_thread(c, t->process->id, track_tid(c->x, t), name, (int64_t)t->kind);
    return 0;
}

static void put_value(FILE *out, const struct rows_value *v) {
    if (v->kind == ROWS_INTEGER)
        put_int(out, v->i);
    else if (v->kind == ROWS_REAL)
        page_real(out, v->f, 17);
    else
        page_bytes(out, v->p, v->n);
}

static void put_args(FILE *out, const struct export_event *e) {
    const char *comma = "";
    struct rows_value v;

    fputs(",\"args\":{", out);
    for (int i = 0; i < e->nargs; i++) {
        const char *name = export_event_arg(e, i, &v);
        if (v.kind == ROWS_NULL)
            continue;
        fputs(comma, out);
        page_text(out, name);
        fputc(':', out);
        put_value(out, &v);
        comma = ",";
    }
    if (e->open)
        fprintf(out, "%s\"not seen to end\":1", comma);
    else if (e->recorded != e->duration)
        fprintf(out, "%s\"recorded_ns\":%lld", comma, (long long)e->recorded);
    fputc('}', out);
}

static void put_flow(struct chrome *c, const struct export_event *e) {
    static const char *const phases[] = {"", "s", "t", "f"};

    begin(c, phases[e->place], e->track->process->id);
    /* The id has 52 bits, which JavaScript's numbers hold. "bp":"e" binds the flow's end to the slice around it, not to the next one. */
    fprintf(c->x->out, ",\"tid\":%llu,\"name\":\"collective\",\"cat\":\"collective\",\"id\":%llu%s",
            (unsigned long long)track_tid(c->x, e->track), (unsigned long long)(e->flow >> 11),
            e->place == EXPORT_FLOW_FIRST ? "" : ",\"bp\":\"e\"");
    put_us(c->x->out, ",\"ts\":", e->ts - c->x->first);
    fputc('}', c->x->out);
}

static int put_event(void *ctx, const struct export_event *e) {
    struct chrome *c = ctx;
    FILE *out = c->x->out;
    int is_slice = e->kind < EXPORT_MARK;

    begin(c, is_slice ? "X" : e->kind == EXPORT_MARK ? "i" : "C", e->track->process->id);
    if (e->kind == EXPORT_COUNTER) {
        put_key_text(out, "name", e->track->name);
        put_us(out, ",\"ts\":", e->ts - c->x->first);
        fputs(",\"args\":{", out);
        page_text(out, *e->track->unit ? e->track->unit : "value");
        fputc(':', out);
        page_real(out, e->value, 17);
        fputs("}}", out);
        return 0;
    }
    put_text(out, ",\"tid\":");
    put_uint(out, track_tid(c->x, e->track));
    if (e->kind == EXPORT_STEP &&
        strncmp(e->name, "step ", 5) == 0) /* as PyTorch's profiler names steps, for its tools */
        fprintf(out, ",\"name\":\"ProfilerStep#%s\"", e->name + 5);
    else
        put_key_text(out, "name", e->name);
    put_key_text(out, "cat", e->category);
    put_us(out, ",\"ts\":", e->ts - c->x->first);
    if (is_slice)
        put_us(out, ",\"dur\":", e->duration);
    else
        fputs(",\"s\":\"t\"", out);
    put_args(out, e);
    fputc('}', out);
    if (e->place != EXPORT_FLOW_NONE)
        put_flow(c, e);
    return 0;
}

static int put_samples(struct export *x, struct export_tree *tree) {
    struct export_sample s;
    sqlite3_stmt *st = NULL;
    const char *comma = "";
    uint32_t node;
    int rc = export_samples(x, EXPORT_AS_RECORDED, &st);

    while (rc == 0 && (rc = export_sample(x, st, &s)) > 0) {
        const struct export_thread *t = export_thread(x, s.thread);
        if (!t || (rc = export_tree_stack(tree, s.stack, &node)) < 0)
            continue;
        put_text(x->out, comma);
        put_text(x->out, "{\"cpu\":0,\"tid\":");
        put_uint(x->out, thread_tid(x, t));
        put_text(x->out, s.flags & 1 ? ",\"name\":\"running\"" : ",\"name\":\"idle\"");
        put_text(x->out, ",\"sf\":\"");
        put_uint(x->out, node);
        put_text(x->out, "\",\"weight\":");
        put_int(x->out, s.count);
        put_us(x->out, ",\"ts\":", s.ts - x->first);
        fputc('}', x->out);
        comma = ",\n";
        rc = 0;
    }
    sqlite3_finalize(st);
    return rc;
}

static void put_frames(struct export *x, const struct export_tree *tree) {
    for (uint32_t i = 0; i < export_tree_nodes(tree); i++) {
        const struct export_node *n = export_tree_node(tree, i);
        fprintf(x->out, "%s\"%u\":{\"name\":", i ? ",\n" : "", i);
        page_text(x->out, n->frame ? n->frame->name : EXPORT_UNREAD);
        put_key_text(x->out, "category", n->frame ? export_place(n->frame) : "");
        if (n->parent != EXPORT_NO_NODE)
            fprintf(x->out, ",\"parent\":\"%u\"", n->parent);
        fputc('}', x->out);
    }
}

static int write_chrome(struct export *x) {
    struct chrome c = {x, ""};
    struct export_tree *tree = NULL;
    int rc = export_tree_open(&tree, x);

    fprintf(x->out,
            "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%lld,\n",
            (long long)x->first);
    fputs("\"otherData\":{\"exporter\":\"probing " PROBING_VERSION "\",\"title\":", x->out);
    page_text(x->out, x->title ? x->title : x->process[0].command);
    fputs("},\n", x->out);
    /* The tools of PyTorch's profiler look for this in a file of one rank. */
    if (x->nprocesses == 1 && x->process->rank >= 0)
        fprintf(x->out, "\"distributedInfo\":{\"rank\":%lld,\"world_size\":%lld},\n",
                (long long)x->process->rank, (long long)x->process->world_size);
    fputs("\"traceEvents\":[\n", x->out);
    put_processes(&c);
    if (rc == 0)
        rc = export_events(x, put_track, put_event, &c);
    fputs("],\n\"samples\":[\n", x->out);
    if (rc == 0)
        rc = put_samples(x, tree);
    fputs("],\n\"stackFrames\":{\n", x->out);
    if (rc == 0)
        put_frames(x, tree);
    fputs("}}\n", x->out);
    export_tree_close(tree);
    return rc;
}

const struct export_format export_chrome = {
    "chrome", ".json", "trace events as JSON: chrome://tracing, Perfetto, HTA", 0, write_chrome};
