/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.c - merges the stacks of all nodes. Each node gives its own as a tree, by `probing stacks --flat`.
 *
 * If all nodes give ranks and no two nodes have the same one, they belong to one job: those on a branch are shown as numbers. Otherwise they are
 * shown by node and number.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cluster/cluster.h"
#include "tools/common.h"
#include "tools/stack_print.h"

#define DEPTH    1024
#define WHO_MAX  100000  /* most processes on one branch of one node */
#define WORK_MAX 8000000 /* most entries in all trees: no job has more, only a malicious server */

struct merge {
    struct ask *asks;
    cJSON **trees; /* by node */
    size_t n, work;
    struct stack_tree *tree;
    int by_name; /* processes are shown by name, else by number */
    char **names;
    size_t nnames;
    struct number {
        int number;
        size_t node, name;
    } * numbers; /* of all roots; sorted by number, then node */
    size_t nnumbers, capnumbers;
};

/* Calls fn for each number in a text such as "0-2,7". Returns 0, -EBADMSG, or the error of fn. */
static int each_number(const char *text,
                       int (*fn)(struct merge *m, size_t node, int number, void *arg),
                       struct merge *m, size_t node, void *arg) {
    long count = 0;
    char *end;

    for (const char *p = text; p && *p; p = *end ? end + 1 : end) {
        long a = strtol(p, &end, 10), b = a;
        if (end == p || a < 0 || a > 1 << 30)
            return -EBADMSG;
        if (*end == '-') {
            p = end + 1;
            b = strtol(p, &end, 10);
            if (end == p)
                return -EBADMSG;
        }
        if (b < a || b > 1 << 30 || (*end && *end != ',') || (count += b - a + 1) > WHO_MAX)
            return -EBADMSG;
        for (; a <= b; a++) {
            int rc = ++m->work > WORK_MAX ? -EBADMSG : fn(m, node, (int)a, arg);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* ---- who there is ---- */

static int by_number(const void *a, const void *b) {
    const struct number *x = a, *y = b;

    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : (x->node > y->node) - (x->node < y->node);
}

static int note(struct merge *m, size_t node, int number, void *arg) {
    (void)arg;
    if (m->nnumbers == m->capnumbers) {
        size_t cap = m->capnumbers ? m->capnumbers * 2 : 256;
        struct number *more = realloc(m->numbers, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        m->numbers = more;
        m->capnumbers = cap;
    }
    m->numbers[m->nnumbers++] = (struct number){.number = number, .node = node};
    return 0;
}

static const char *text_of(const cJSON *j, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, name));
}

static const cJSON *nodes_of(const cJSON *tree) {
    return cJSON_GetObjectItemCaseSensitive(tree, "nodes");
}

/* Decides whether numbers tell processes apart; if not, makes names. Returns 0 or -errno. */
static int find_names(struct merge *m) {
    size_t i;

    for (i = 0; i < m->n; i++) {
        const char *by = m->trees[i] ? text_of(m->trees[i], "by") : NULL;
        m->by_name |= by && strcmp(by, "process") == 0;
    }
    if (m->nnumbers)
        qsort(m->numbers, m->nnumbers, sizeof *m->numbers, by_number);
    for (i = 1; i < m->nnumbers; i++)
        m->by_name |= m->numbers[i].number == m->numbers[i - 1].number;
    if (!m->by_name)
        return 0;
    if (!(m->names = calloc(m->nnumbers + 1, sizeof *m->names)))
        return -ENOMEM;
    for (i = 0; i < m->nnumbers; i++) {
        m->numbers[i].name = i;
        if (asprintf(&m->names[i], "%s %d", m->asks[m->numbers[i].node].node->address,
                     m->numbers[i].number) < 0) {
            m->names[i] = NULL;
            return -ENOMEM;
        }
        m->nnames++;
    }
    return 0;
}

/* ---- one tree into the whole ---- */

struct path {
    const char *frames[DEPTH];
    unsigned n;
    double waited;
};

static int put(struct merge *m, size_t node, int number, void *arg) {
    const struct number wanted = {.number = number, .node = node}, *found;
    struct path *p = arg;
    int who = number;

    if (m->by_name) {
        found = bsearch(&wanted, m->numbers, m->nnumbers, sizeof *found, by_number);
        if (!found) /* on a branch, but not in the root */
            return -EBADMSG;
        who = (int)found->name;
    }
    return p->n ? stack_tree_add(m->tree, who, p->frames, p->n, p->waited) : 0;
}

/* Adds the path of each branch with the processes on it: the tree counts no process twice. A parent comes before its children, and the path to it
 * is still in p->frames. */
static int add_nodes(struct merge *m, size_t node, const cJSON *tree, struct path *p) {
    const cJSON *nodes = nodes_of(tree), *j;
    int count = cJSON_GetArraySize(nodes), at = 0, rc = 0;
    unsigned *depth = calloc((size_t)count + 1, sizeof *depth);

    if (!depth)
        return -ENOMEM;
    cJSON_ArrayForEach(j, nodes) {
        const char *frame = text_of(j, "frame"), *ranks = text_of(j, "ranks");
        const cJSON *parent = cJSON_GetObjectItemCaseSensitive(j, "parent"),
                    *waited = cJSON_GetObjectItemCaseSensitive(j, "waited");
        double of = cJSON_IsNumber(parent) ? parent->valuedouble : -1;

        if (!frame || !ranks || !(of >= 0) || of != (int)of || (at && of >= at)) {
            rc = -EBADMSG;
            break;
        }
        p->n = at ? depth[(int)of] : 0;
        if (p->n == DEPTH) {
            rc = -EBADMSG;
            break;
        }
        if (*frame || at)
            p->frames[p->n++] = frame;
        depth[at++] = p->n;
        p->waited = cJSON_IsNumber(waited) ? waited->valuedouble : -1;
        if ((rc = each_number(ranks, put, m, node, p)) < 0)
            break;
    }
    free(depth);
    return rc;
}

static int done(void *ctx, struct ask *ask) {
    struct merge *m = ctx;
    size_t node = (size_t)(ask - m->asks), before = m->nnumbers;

    m->trees[node] = cJSON_ParseWithLength(ask->text, ask->n);
    const cJSON *root = cJSON_GetArrayItem(nodes_of(m->trees[node]), 0);
    int rc = root ? each_number(text_of(root, "ranks"), note, m, node, NULL) : -EBADMSG;
    if (rc < 0) {
        m->nnumbers = before;
        cJSON_Delete(m->trees[node]);
        m->trees[node] = NULL;
        snprintf(ask->error, sizeof ask->error,
                 "its answer is not what a server of probing's says");
    }
    return rc;
}

static void show(const struct cluster *c, struct merge *m) {
    const struct stack_node *root = stack_tree_root(m->tree);
    struct stack_who who = {.by_pid = m->by_name, .names = (const char *const *)m->names};

    if (!c->json && !c->flat) {
        if (root->nwho)
            stack_print(stdout, root, &who);
        else
            tool_say("no samples then");
        return;
    }
    fputs("{\"stacks\": ", stdout);
    (c->flat ? stack_print_flat : stack_print_json)(stdout, root, &who);
    fputs(", \"failed\": ", stdout);
    ask_failed_json(stdout, m->asks, m->n);
    fputs("}\n", stdout);
}

int cluster_stacks(struct cluster *c, int threads, int native) {
    char path[80];
    struct path p;

    snprintf(path, sizeof path, "/api/v1/stacks?flat=1&threads=%d&native=%d", threads, native);
    struct merge m = {.asks = ask_each(c, path, NULL), .n = c->nodes.n};
    if (!m.asks)
        return TOOL_FAILED;
    m.trees = calloc(m.n, sizeof *m.trees);
    m.tree = stack_tree_new();
    int rc = m.trees && m.tree ? ask_all(c, m.asks, m.n, done, &m) : -ENOMEM, code;
    ask_twice(m.asks, m.n);
    for (size_t i = 0; m.trees && i < m.n; i++) {
        if (m.asks[i].ok)
            continue;
        cJSON_Delete(m.trees[i]);
        m.trees[i] = NULL;
        size_t left = 0;
        for (size_t k = 0; k < m.nnumbers; k++) {
            if (m.numbers[k].node != i)
                m.numbers[left++] = m.numbers[k];
        }
        m.nnumbers = left;
    }
    rc = rc == 0 ? find_names(&m) : rc;
    for (size_t i = 0; rc == 0 && i < m.n; i++) {
        p.n = 0;
        if (m.trees[i] && (rc = add_nodes(&m, i, m.trees[i], &p)) == -EBADMSG) {
            m.asks[i].ok = 0; /* earlier branches stay in the tree */
            snprintf(m.asks[i].error, sizeof m.asks[i].error,
                     "its answer is in part not what a server of probing's says");
            rc = 0;
        }
    }
    if (rc == 0)
        show(c, &m);
    code =
        rc < 0 ? tool_fail("cannot merge the stacks: %s", strerror(-rc)) : ask_failed(m.asks, m.n);
    for (size_t i = 0; m.trees && i < m.n; i++)
        cJSON_Delete(m.trees[i]);
    for (size_t i = 0; i < m.nnames; i++)
        free(m.names[i]);
    free(m.names);
    free(m.numbers);
    free(m.trees);
    stack_tree_free(m.tree);
    free(m.asks);
    return code;
}
