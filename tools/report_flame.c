/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_flame.c - writes the samples as one tree, and the weights of its nodes by rank and by time.
 *
 * One pass adds up the samples by group of threads, rank and stack, and by group of threads, slice of the time and stack. Threads of
 * one name and role are one group, whatever their process. Then each distinct stack becomes a node of the tree. A weight too small to
 * be seen is added to its parent's, so that sums stay what they are.
 *
 * JSON: {tick_s, slices, labels: [[name, file, kind, line], ...], nodes: [label, parent, ...] (the root first, parents before
 * children), ranks: [...], all: [node, busy, idle, ...], rank: [[...] ...], slice: [[...] ...]}, where weights are ticks
 * with that node innermost. Idle: off a CPU, and not the main thread of a process that trains.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/bind.h"
#include "flame.h"
#include "flame_fold.h"
#include "flame_sums.h"
#include "page_json.h"
#include "report.h"

#define SLICES    60
#define MOST_NODE 4000   /* nodes */
#define MOST_RANK 256    /* number of ranks that get weights of their own */
#define ENTRIES   120000 /* numbers in the weights by rank, and as many by slice */

struct thread {
    int64_t id;
    uint32_t node; /* its group's, in the tree */
    int32_t rank;  /* index in ranks; -1: none */
    int waits;     /* the thread is idle when it is off a CPU */
};

struct weight {
    uint32_t node;
    uint64_t busy, idle;
};

struct flames {
    struct report *r;
    struct flame *f;
    struct fold fold;
    struct fold_stacks *stacks;
    struct sums by_rank, by_slice;
    struct thread *thread; /* sorted by id */
    size_t nthreads;
    int64_t *rank;
    uint32_t nranks;
    uint32_t *shown; /* by node of the tree: its number on the page */
};

static int by_id(const void *a, const void *b) {
    const struct thread *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int add_thread(struct flames *s, sqlite3_stmt *st) {
    const char *text = (const char *)sqlite3_column_text(st, 2);
    uint32_t node = flame_child(s->f, FLAME_ROOT, flame_label(s->f, text, "", FLAME_GROUP));

    if ((s->nthreads & (s->nthreads - 1)) == 0) {
        size_t cap = s->nthreads ? 2 * s->nthreads : 1;
        struct thread *more = realloc(s->thread, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        s->thread = more;
    }
    struct thread *t = &s->thread[s->nthreads++];
    *t = (struct thread){.id = sqlite3_column_int64(st, 0), .node = node, .rank = -1};
    t->waits = strcmp(text, "main thread") != 0;
    if (sqlite3_column_type(st, 1) != SQLITE_NULL && s->nranks) {
        int64_t rank = sqlite3_column_int64(st, 1);
        for (uint32_t i = 0; i < s->nranks; i++) {
            if (s->rank[i] == rank)
                t->rank = (int32_t)i;
        }
    }
    return 0;
}

/* Reads the ranks, then the threads. Helper processes (loaders, launchers) have a role, workers have none. */
static int read_threads(struct flames *s) {
    static const char ranks[] =
        "SELECT DISTINCT rank FROM trace_file WHERE rank IS NOT NULL ORDER BY 1 LIMIT ?1";
    static const char threads[] =
        "SELECT h.id, t.rank, " FOLD_GROUP
        " FROM trace_file t JOIN thread h ON h.trace = t.id WHERE h.samples > 0"
        " ORDER BY t.role IN ('launcher', 'dataloader') IS TRUE, h.tid = t.pid DESC, h.id";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->r->db, ranks, -1, &st, NULL), err = 0;

    if (!(s->rank = calloc(MOST_RANK, sizeof *s->rank)))
        err = -ENOMEM;
    sqlite3_bind_int(st, 1, MOST_RANK);
    while (err == 0 && rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        s->rank[s->nranks++] = sqlite3_column_int64(st, 0);
    rc = sql_end(st, rc);
    st = NULL;
    if (err == 0 && rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(s->r->db, threads, -1, &st, NULL);
    while (err == 0 && rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        err = add_thread(s, st);
    rc = sql_end(st, rc);
    if (s->nthreads)
        qsort(s->thread, s->nthreads, sizeof *s->thread, by_id);
    return err ? err : rc == SQLITE_OK ? 0 : -EIO;
}

/* a group's node, slice or rank, and idle as one number that is not 0 */
static int64_t pack(uint32_t node, uint32_t place, int idle) {
    return ((int64_t)(node + 1) << 32) | ((int64_t)place << 1) | idle;
}

static int read_samples(struct flames *s) {
    static const char sql[] =
        "SELECT (s.id >> 40 << 40) + s.thread, s.stack, s.count, s.flags & 1, s.ts FROM sample s WHERE s.count > 0";
    double from = s->r->t0 * 1e9, width = (s->r->t1 - s->r->t0) * 1e9 / SLICES;
    const struct thread *t = NULL;
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->r->db, sql, -1, &st, NULL), step = SQLITE_ROW;

    while (rc == SQLITE_OK && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct thread key = {.id = sqlite3_column_int64(st, 0)};
        if (!t || t->id != key.id)
            t = s->nthreads ? bsearch(&key, s->thread, s->nthreads, sizeof key, by_id) : NULL;
        if (!t)
            continue;
        int64_t stack = sqlite3_column_int64(st, 1);
        uint64_t count = (uint64_t)sqlite3_column_int64(st, 2);
        int idle = t->waits && !sqlite3_column_int(st, 3);
        double slice = (sqlite3_column_double(st, 4) - from) / width;
        uint32_t n = slice < 0 ? 0 : slice >= SLICES ? SLICES - 1 : (uint32_t)slice;
        rc = sums_add(&s->by_rank, pack(t->node, (uint32_t)(t->rank + 1), idle), stack, count);
        if (rc == SQLITE_OK)
            rc = sums_add(&s->by_slice, pack(t->node, n, idle), stack, count);
    }
    sqlite3_finalize(st);
    sums_list(&s->by_rank);
    sums_list(&s->by_slice);
    return rc == SQLITE_NOMEM ? -ENOMEM : rc != SQLITE_OK || step != SQLITE_DONE ? -EIO : 0;
}

/* Adds the stacks to the tree. In each sum, the member `stack` becomes the number of the node. */
static int find_nodes(struct flames *s, struct sums *sums, int weigh) {
    uint32_t unread = flame_label(s->f, "(stack could not be read)", "", FLAME_GROUP);
    int rc = SQLITE_OK;

    for (size_t i = 0; i < sums->n && rc == SQLITE_OK; i++) {
        struct sum *sum = &sums->sum[i];
        uint32_t node = (uint32_t)(sum->thread >> 32) - 1;
        if (sum->stack)
            rc = fold_stack(s->stacks, node, sum->stack, weigh ? sum->weight : 0, &node);
        else
            node = flame_child(s->f, node, unread);
        sum->stack = node;
        if (weigh)
            flame_add(s->f, node, sum->weight);
    }
    return rc == SQLITE_OK ? 0 : -EIO;
}

static int descending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Chooses the nodes that are on the page, and their numbers there. Each other node gets the number of its nearest ancestor on the page. */
static int choose_nodes(struct flames *s, uint32_t *count) {
    uint32_t n = flame_nodes(s->f), k = 0;
    uint64_t least = 1, *total = malloc(n * sizeof *total);

    s->shown = calloc(n, sizeof *s->shown);
    if (!total || !s->shown) {
        free(total);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        total[i] = flame_node(s->f, i)->total;
    qsort(total, n, sizeof *total, descending);
    if (n > MOST_NODE)
        least = total[MOST_NODE] + 1;
    free(total);
    for (uint32_t i = 0; i < n; i++) {
        const struct flame_node *node = flame_node(s->f, i);
        s->shown[i] = i == FLAME_ROOT || node->total >= least ? k++ : s->shown[node->parent];
    }
    *count = k;
    return 0;
}

static int is_shown(const struct flames *s, uint32_t i) {
    return i == FLAME_ROOT || s->shown[i] != s->shown[flame_node(s->f, i)->parent];
}

static void put_nodes(struct flames *s) {
    FILE *out = s->r->out;
    const char *comma = "";

    /* Many nodes may have one label, and some labels have no node: each text is written once, and nodes refer to it by its number. */
    uint32_t n = flame_nodes(s->f), nlabels = 0, next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (flame_node(s->f, i)->label >= nlabels)
            nlabels = flame_node(s->f, i)->label + 1;
    }
    uint32_t *place = calloc(nlabels + 1, sizeof *place);
    fputs(",\"labels\":[", out);
    for (uint32_t i = 0; place && i < n; i++) {
        uint32_t label = flame_node(s->f, i)->label;
        if (!is_shown(s, i) || place[label])
            continue;
        const struct flame_label *l = flame_label_of(s->f, i);
        fprintf(out, "%s[", comma);
        page_text(out, l->func);
        fputc(',', out);
        page_text(out, l->file);
        fprintf(out, ",%d,%u]", (int)l->kind, l->line);
        comma = ",\n";
        place[label] = ++next;
    }
    fputs("],\"nodes\":[", out);
    comma = "";
    for (uint32_t i = 0; place && i < n; i++) {
        const struct flame_node *node = flame_node(s->f, i);
        if (!is_shown(s, i))
            continue;
        fprintf(out, "%s%u,%u", comma, place[node->label] - 1, s->shown[node->parent]);
        comma = ",";
    }
    fputc(']', out);
    free(place);
}

/* Writes the weights of one place (a rank or a slice; -1: all) for at most `most` nodes: smaller weights are added to those of the parents. */
static void put_weights(struct flames *s, const struct sums *sums, int64_t place, struct weight *w,
                        uint32_t n, uint32_t most, const uint32_t *parent) {
    const char *comma = "";
    uint32_t used = 0;
    uint64_t all = 0;

    memset(w, 0, n * sizeof *w);
    for (size_t i = 0; i < sums->n; i++) {
        const struct sum *sum = &sums->sum[i];
        if (place >= 0 && (sum->thread >> 1 & 0x7fffffff) != place)
            continue;
        struct weight *at = &w[s->shown[sum->stack]];
        used += !at->busy && !at->idle;
        *(sum->thread & 1 ? &at->idle : &at->busy) += sum->weight;
        all += sum->weight;
    }
    /* Goes through the nodes backwards: children come after their parents, so a weight that was moved to a parent is still examined there. */
    for (uint64_t least = all / 5000; used > most && least <= all; least = least * 2 + 1) {
        for (uint32_t i = n; i-- > 1;) {
            if ((!w[i].busy && !w[i].idle) || w[i].busy + w[i].idle > least)
                continue;
            struct weight *up = &w[parent[i]];
            used -= up->busy || up->idle;
            up->busy += w[i].busy;
            up->idle += w[i].idle;
            w[i].busy = w[i].idle = 0;
        }
    }
    fputc('[', s->r->out);
    for (uint32_t i = 0; i < n; i++) {
        if (!w[i].busy && !w[i].idle)
            continue;
        fprintf(s->r->out, "%s%u,%llu,%llu", comma, i, (unsigned long long)w[i].busy,
                (unsigned long long)w[i].idle);
        comma = ",";
    }
    fputc(']', s->r->out);
}

static int put_all(struct flames *s) {
    FILE *out = s->r->out;
    uint32_t n = 0, places = s->nranks ? s->nranks : 1;
    int rc = choose_nodes(s, &n);
    struct weight *w = calloc(n + 1, sizeof *w);
    uint32_t *parent = calloc(n + 1, sizeof *parent);

    if (rc < 0 || !w || !parent) {
        rc = -ENOMEM;
        goto out;
    }
    for (uint32_t i = 0; i < flame_nodes(s->f); i++) {
        if (is_shown(s, i))
            parent[s->shown[i]] = s->shown[flame_node(s->f, i)->parent];
    }
    fputs("{\"tick_s\":", out);
    page_real(out, s->fold.tick, 9);
    fprintf(out, ",\"slices\":%d", SLICES);
    put_nodes(s);
    fputs(",\"ranks\":[", out);
    for (uint32_t i = 0; i < s->nranks; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)s->rank[i]);
    fputs("],\n\"all\":", out);
    put_weights(s, &s->by_rank, -1, w, n, n, parent);
    fputs(",\n\"rank\":[", out);
    for (uint32_t i = 0; i < s->nranks; i++) {
        if (i)
            fputs(",\n", out);
        put_weights(s, &s->by_rank, i + 1, w, n, ENTRIES / 3 / places, parent);
    }
    fputs("],\n\"slice\":[", out);
    for (uint32_t i = 0; i < SLICES; i++) {
        if (i)
            fputs(",\n", out);
        put_weights(s, &s->by_slice, i, w, n, ENTRIES / 3 / SLICES, parent);
    }
    fputs("]}", out);
out:
    free(w);
    free(parent);
    return rc;
}

int report_flame(struct report *r) {
    struct flames s = {.r = r, .fold = {.pid = -1, .rank = -1}};
    sqlite3_stmt *st = NULL;
    int rc = flame_new(&s.f);

    if (rc == 0 &&
        sqlite3_prepare_v2(r->db, "SELECT min(ns) / 1e9 FROM period WHERE ns > 0", -1, &st, NULL) ==
            SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        s.fold.tick = sqlite3_column_double(st, 0);
    sqlite3_finalize(st);
    if (rc == 0)
        rc = read_threads(&s);
    if (rc == 0)
        rc = read_samples(&s);
    if (rc == 0 && fold_open(&s.stacks, s.f, r->db, &s.fold) != SQLITE_OK)
        rc = -EIO;
    if (rc == 0)
        rc = find_nodes(&s, &s.by_rank, 1);
    if (rc == 0)
        rc = find_nodes(&s, &s.by_slice, 0);
    fold_close(s.stacks); /* this also sets the labels' lines */
    if (rc == 0)
        rc = flame_finish(s.f);
    if (rc == 0 && s.by_rank.n)
        rc = put_all(&s);
    else
        fputs("null", r->out);
    flame_free(s.f);
    sums_free(&s.by_rank);
    sums_free(&s.by_slice);
    free(s.thread);
    free(s.rank);
    free(s.shown);
    return rc == -EIO ? 0 : rc; /* samples that cannot be read are left out of the page */
}
