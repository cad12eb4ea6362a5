/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOW IT WORKS: each side's samples are added up by thread, stack and sixteenth of their trace's time. The stacks of both go into one tree,
 * whose weights are those of B. A frame's share of a side is its part of all the side's samples. The noise of a share follows from how much
 * it differs between the sixteenths, as in `probing diff`, and from the number of samples.
 */
#include "flame_diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "flame_sums.h"
#include "new_file.h"

#define SURE 3 /* a change of more than this many times its noise counts as a difference */

struct side {
    struct sums sums[SUMS_PARTS];
    double tick;
    uint64_t weight;
};

struct both {
    struct flame_diff *d;
    struct flame *f;
    struct side side[2];
    struct flame_change *change; /* by node */
    double gone;                 /* share of A's samples in frames that B does not have */
    char under[400];
};

static int add(void *ctx, int64_t thread, int64_t stack, uint64_t weight, unsigned part) {
    struct side *s = ctx;

    s->weight += weight;
    return sums_add(&s->sums[part], thread, stack, weight);
}

/* Sets *node to the node for a thread, by the name of its group. Returns SQLITE_ROW, SQLITE_DONE if the thread is not wanted, or an error. */
static int thread_node(struct flame *f, sqlite3_stmt *st, int64_t thread, uint32_t *node) {
    sqlite3_reset(st);
    sqlite3_bind_int64(st, 1, thread);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *node =
            flame_child(f, FLAME_ROOT,
                        flame_label(f, (const char *)sqlite3_column_text(st, 0), "", FLAME_GROUP));
    return rc;
}

/* Adds a side's stacks to the tree. In each sum, the member `stack` becomes the number of the node, 0 where its thread is not wanted. */
static int fold_side(struct both *both, int i, struct fold_stacks *stacks, sqlite3_stmt *st) {
    struct side *s = &both->side[i];
    uint32_t unread = flame_label(both->f, "(stack could not be read)", "", FLAME_GROUP), node = 0;

    for (unsigned part = 0; part < SUMS_PARTS; part++) {
        int found = SQLITE_DONE;
        sums_list(&s->sums[part]);
        for (size_t k = 0; k < s->sums[part].n; k++) {
            struct sum *sum = &s->sums[part].sum[k];
            uint32_t leaf = 0;
            int rc = SQLITE_OK;
            if (k == 0 || sum->thread != sum[-1].thread)
                found = thread_node(both->f, st, sum->thread, &node);
            if (found == SQLITE_ROW && sum->stack)
                rc = fold_stack(stacks, node, sum->stack, i ? sum->weight : 0, &leaf);
            else if (found == SQLITE_ROW)
                leaf = flame_child(both->f, node, unread);
            else if (found != SQLITE_DONE)
                rc = found;
            if (rc != SQLITE_OK)
                return rc;
            if (!leaf)
                s->weight -= sum->weight;
            else if (i)
                flame_add(both->f, leaf, sum->weight);
            sum->stack = leaf;
        }
    }
    return SQLITE_OK;
}

static int read_side(struct both *both, int i) {
    static const char thread_sql[] = "SELECT " FOLD_GROUP FOLD_THREADS;
    const struct flame_diff_side *from = &both->d->side[i];
    struct fold_stacks *stacks = NULL;
    struct fold fold = both->d->fold;
    sqlite3_stmt *st = NULL;

    fold.run = from->run;
    fold.rank = from->rank;
    int rc = sums_each(from->db, &fold, &both->side[i].tick, add, &both->side[i]);
    if (rc == SQLITE_OK)
        rc = fold_open(&stacks, both->f, from->db, &fold);
    if (rc == SQLITE_OK &&
        (rc = sqlite3_prepare_v2(from->db, thread_sql, -1, &st, NULL)) == SQLITE_OK) {
        if (fold.thread)
            sqlite3_bind_text(st, 2, fold.thread, -1, SQLITE_STATIC);
        rc = fold_side(both, i, stacks, st);
    }
    sqlite3_finalize(st);
    fold_close(stacks);
    return rc == SQLITE_OK
               ? TOOL_OK
               : tool_fail(
                     "cannot read the samples of %s: %s (is it a database made by probing-convert?)",
                     from->name, fold_why(from->db, rc));
}

/* Returns the share that a frame has of a side's samples, and in *error how far that may be off: the larger of two estimates, one by the spread
 * of the sixteenths (without the first and the last, in which a program starts and ends), one by the number of samples. */
static double share(const float *w, const float *all, uint64_t weight, double *error) {
    double sum = w[0] + w[SUMS_PARTS - 1], whole = all[0] + all[SUMS_PARTS - 1], mean = 0, off = 0;
    int n = 0;

    for (int k = 1; k < SUMS_PARTS - 1; k++) {
        sum += w[k];
        whole += all[k];
        mean += all[k] > 0 ? w[k] / all[k] : 0;
        n += all[k] > 0;
    }
    double p = whole > 0 ? sum / whole : 0;
    mean = n ? mean / n : 0;
    for (int k = 1; k < SUMS_PARTS - 1; k++)
        off += all[k] > 0 ? (w[k] / all[k] - mean) * (w[k] / all[k] - mean) : 0;
    double by_parts = n > 1 ? sqrt(off / (n - 1) / n) : 1;
    /* One sample more than was seen: that none was seen among few samples proves little. */
    double by_count = weight ? sqrt((sum + 1) * fmax(0, 1 - p)) / (double)weight : 1;
    *error = fmax(by_parts, by_count);
    return p;
}

static int weigh(struct both *both) {
    uint32_t n = flame_nodes(both->f);
    float *w = calloc((size_t)n * 2 * SUMS_PARTS, sizeof *w);

    both->change = calloc(n, sizeof *both->change);
    if (!w || !both->change) {
        free(w);
        return tool_fail("cannot draw: no memory");
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < SUMS_PARTS; k++) {
            const struct sums *s = &both->side[i].sums[k];
            for (size_t j = 0; j < s->n; j++) {
                if (s->sum[j].stack)
                    w[((size_t)s->sum[j].stack * 2 + (size_t)i) * SUMS_PARTS + (size_t)k] +=
                        (float)s->sum[j].weight;
            }
        }
    }
    for (uint32_t i = n; i-- > 1;) {
        size_t up = flame_node(both->f, i)->parent;
        for (size_t k = 0; k < 2 * SUMS_PARTS; k++)
            w[up * 2 * SUMS_PARTS + k] += w[(size_t)i * 2 * SUMS_PARTS + k];
    }
    for (uint32_t i = 0; i < n; i++) {
        const float *of = w + (size_t)i * 2 * SUMS_PARTS;
        struct flame_change *c = &both->change[i];
        double a, b;
        c->a = share(of, w, both->side[0].weight, &a);
        c->b = share(of + SUMS_PARTS, w + SUMS_PARTS, both->side[1].weight, &b);
        c->noise = SURE * sqrt(a * a + b * b);
        const struct flame_node *node = flame_node(both->f, i);
        if (!node->total && flame_node(both->f, node->parent)->total)
            both->gone += c->a;
    }
    free(w);
    return TOOL_OK;
}

static int write_out(void *ctx, FILE *out) {
    const struct both *both = ctx;
    const struct flame_diff *d = both->d;
    char title[600];
    struct flame_picture picture = {.title = d->title ? d->title : title,
                                    .subtitle = both->under,
                                    .tick = both->side[1].tick,
                                    .least = 0.0005,
                                    .icicle = d->icicle,
                                    .change = both->change};

    snprintf(title, sizeof title, "%.250s against %.250s", d->side[1].name, d->side[0].name);
    flame_write_svg(both->f, &picture, out);
    return 0;
}

static int draw(struct both *both) {
    struct flame_diff *d = both->d;
    char counts[2][TOOL_TEXT];
    int code = TOOL_OK;

    for (int i = 0; i < 2 && code == TOOL_OK; i++)
        code = read_side(both, i);
    for (int i = 0; i < 2 && code == TOOL_OK; i++) {
        if (!both->side[i].weight) {
            tool_say("there is nothing to compare: %s has no sample that fits the options%s",
                     d->side[i].name, d->fold.idle ? "" : " (--idle takes idle threads, too)");
            return TOOL_PARTIAL;
        }
    }
    if (code == TOOL_OK && flame_finish(both->f) < 0)
        code = tool_fail("cannot draw: no memory");
    if (code == TOOL_OK)
        code = weigh(both);
    if (code != TOOL_OK)
        return code;
    snprintf(
        both->under, sizeof both->under,
        "A: %s samples \xc2\xb7 B: %s samples \xc2\xb7 %.1f %% of A is in what B has not, and is not drawn",
        tool_count(both->side[0].weight, counts[0]), tool_count(both->side[1].weight, counts[1]),
        100 * both->gone);
    int rc = d->output ? new_file(d->output, write_out, both) : write_out(both, stdout);
    return rc < 0 ? tool_fail("cannot write %s: %s", d->output ? d->output : "the picture",
                              strerror(-rc))
                  : TOOL_OK;
}

int flame_diff_draw(struct flame_diff *d) {
    struct both *both = calloc(1, sizeof *both);

    if (!both || flame_new(&both->f) < 0) {
        free(both);
        return tool_fail("cannot draw: no memory");
    }
    both->d = d;
    int code = draw(both);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < SUMS_PARTS; k++)
            sums_free(&both->side[i].sums[k]);
    }
    free(both->change);
    flame_free(both->f);
    free(both);
    return code;
}
