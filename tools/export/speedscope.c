/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speedscope.c - writes speedscope's file format: a "sampled" profile for each thread, with stacks in the order in which they were taken and weights
 * in nanoseconds. Equal consecutive stacks are one entry. A frame is a function, whatever the line, as speedscope adds frames up.
 */
#include <errno.h>
#include <stdlib.h>

#include "../page_json.h"
#include "samples.h"
#include "spool.h"
#include "tree.h"

enum { SAMPLES, WEIGHTS };

struct scope {
    struct export *x;
    struct export_tree *tree;
    uint32_t *path; /* a stack's frames, innermost first */
    size_t cap;
    struct export_spool spool;
    uint32_t *
        number; /* by function: place in the list of frames + 1; [0]: a stack that could not be read */
    const struct export_frame **shown;
    uint32_t nshown;
    unsigned profiles;
    /* The present thread, and its last entry, which may still grow: */
    int64_t thread, stack;
    uint64_t weight, total;
};

static uint32_t frame_number(struct scope *s, const struct export_frame *f) {
    uint32_t *n = &s->number[f ? f->function : 0];

    if (!*n) {
        s->shown[s->nshown] = f;
        *n = ++s->nshown;
    }
    return *n - 1;
}

/* Writes a frame's number as text; sprintf() would take most of the time. */
static char *put_number(char *p, uint32_t v) {
    char digits[12];
    int n = 0;

    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10));
    while (n)
        *p++ = digits[--n];
    return p;
}

/* Writes the numbers of a node's frames to s->path, innermost first. Returns how many, or -errno. */
static int path_of(struct scope *s, uint32_t node) {
    size_t n = 0;

    for (; node != EXPORT_NO_NODE; n++) {
        const struct export_node *at = export_tree_node(s->tree, node);
        if (n == s->cap) {
            size_t cap = s->cap ? s->cap * 2 : 256;
            uint32_t *more = realloc(s->path, cap * sizeof *more);
            if (!more)
                return -ENOMEM;
            s->path = more;
            s->cap = cap;
        }
        s->path[n] = frame_number(s, at->frame);
        node = at->parent;
    }
    return (int)n;
}

static int put_entry(struct scope *s) {
    FILE *samples = export_column(&s->spool, SAMPLES), *weights = export_column(&s->spool, WEIGHTS);
    char text[16], *end;
    uint32_t node;
    int n, rc = samples && weights ? export_tree_stack(s->tree, s->stack, &node) : -errno;

    if (rc < 0 || (rc = n = path_of(s, node)) < 0)
        return rc;
    fputs(export_comma(&s->spool, SAMPLES), samples);
    for (int i = n - 1; i >= 0; i--) {
        text[0] = i == n - 1 ? '[' : ',';
        end = put_number(text + 1, s->path[i]);
        fwrite_unlocked(text, 1, (size_t)(end - text), samples);
    }
    fputc(']', samples);
    fprintf(weights, "%s%llu", export_comma(&s->spool, WEIGHTS), (unsigned long long)s->weight);
    s->total += s->weight;
    s->weight = 0;
    return 0;
}

/* Writes the profile of the present thread, from its entries. */
static int put_profile(struct scope *s) {
    static const char *const names[] = {"samples", "weights"};
    const struct export_thread *t = export_thread(s->x, s->thread);
    char name[1000], process[500], thread[420];
    FILE *out = s->x->out;

    fprintf(out, "%s{\"type\":\"sampled\",\"unit\":\"nanoseconds\",\"name\":",
            s->profiles++ ? ",\n" : "");
    snprintf(name, sizeof name, "%s%s%s",
             t ? export_process_name(t->process, process, sizeof process) : "no samples",
             t ? " " : "", t ? export_thread_name(t, thread, sizeof thread) : "");
    page_text(out, name);
    fprintf(out, ",\"startValue\":0,\"endValue\":%llu,\n", (unsigned long long)s->total);
    int rc = export_columns(&s->spool, out, 0, names, 2);
    fputc('}', out);
    s->total = 0;
    return rc;
}

static int put_samples(struct scope *s) {
    struct export_sample e;
    sqlite3_stmt *st = NULL;
    int rc = export_samples(s->x, EXPORT_BY_THREAD, &st);

    s->thread = 0;
    while (rc == 0 && (rc = export_sample(s->x, st, &e)) > 0) {
        int other = e.thread != s->thread;
        rc = s->thread && (other || e.stack != s->stack) ? put_entry(s) : 0;
        if (rc == 0 && s->thread && other)
            rc = put_profile(s);
        s->thread = e.thread;
        s->stack = e.stack;
        s->weight += (uint64_t)e.ns;
    }
    if (rc == 0 && s->thread)
        rc = put_entry(s);
    if (rc == 0 && (s->thread || !s->profiles)) /* a file without profiles is not valid */
        rc = put_profile(s);
    sqlite3_finalize(st);
    return rc;
}

static void put_frames(struct scope *s) {
    FILE *out = s->x->out;

    for (uint32_t i = 0; i < s->nshown; i++) {
        const struct export_frame *f = s->shown[i];
        fprintf(out, "%s{\"name\":", i ? ",\n" : "");
        page_text(out, f ? f->name : EXPORT_UNREAD);
        if (f && (*f->file || *f->module)) {
            fputs(",\"file\":", out);
            page_text(out, *f->file ? f->file : f->module);
        }
        if (f && f->firstline > 0)
            fprintf(out, ",\"line\":%lld", (long long)f->firstline);
        fputc('}', out);
    }
}

static int write_speedscope(struct export *x) {
    struct scope s = {.x = x};
    int rc = export_tree_open(&s.tree, x);

    if (rc == 0) {
        size_t n = (size_t)export_functions_max(export_tree_stacks(s.tree)) + 1;
        s.number = calloc(n, sizeof *s.number);
        s.shown = calloc(n, sizeof *s.shown);
        rc = s.number && s.shown ? 0 : -ENOMEM;
    }
    fputs(
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"probing " PROBING_VERSION
        "\",\"name\":",
        x->out);
    page_text(x->out, x->title ? x->title : x->process[0].command);
    fputs(",\"activeProfileIndex\":0,\"profiles\":[\n", x->out);
    if (rc == 0)
        rc = put_samples(&s);
    fputs("],\n\"shared\":{\"frames\":[\n", x->out);
    if (rc == 0)
        put_frames(&s);
    fputs("]}}\n", x->out);
    export_spool_free(&s.spool);
    free(s.number);
    free(s.shown);
    free(s.path);
    export_tree_close(s.tree);
    return rc;
}

const struct export_format export_speedscope = {
    "speedscope", ".speedscope.json", "speedscope.app: stacks over time, left heavy, sandwich", 0,
    write_speedscope};
