/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/tasks.h"
#include "cache.h"
#include "text.h"

#define MAX_TASKS  20000
#define MAX_FRAMES 1000
#define MAX_DEPTH  100 /* of the tree; deeper tasks are roots of their own */

struct node {
    struct pywalk_task task;
    struct pywalk_frame *frames;
    int nframes;
    size_t first, children; /* in tree.edges: the tasks that it awaits */
    int shown;
};

struct tree {
    struct pywalk pw; /* whose reads go through the cache */
    struct pywalk_objects ob;
    struct node *v;
    size_t n, *edges;
    int more;
    struct text t;
    struct pywalk_code code;
};

static const char *const states[] = {"created", "waiting", "ready", "running"};

/* ---- reading ---- */

static size_t find(const struct tree *tree, uint64_t task) {
    size_t low = 0, high = tree->n;

    while (low < high) { /* sorted by address */
        size_t middle = low + (high - low) / 2;
        if (tree->v[middle].task.task < task)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tree->n && tree->v[low].task.task == task ? low : SIZE_MAX;
}

static int by_address(const void *a, const void *b) {
    const struct pywalk_task *x = a, *y = b;

    return x->task < y->task ? -1 : x->task > y->task;
}

static uint32_t awaiters(const struct node *node) {
    return node->task.awaiters < PYWALK_TASK_AWAITERS ? node->task.awaiters : PYWALK_TASK_AWAITERS;
}

/* From "awaited by" to "awaits". */
static int turn(struct tree *tree) {
    size_t edges = 0;

    for (size_t i = 0; i < tree->n; i++)
        edges += awaiters(&tree->v[i]);
    tree->edges = calloc(edges + 1, sizeof *tree->edges);
    if (!tree->edges)
        return -ENOMEM;
    for (int fill = 0; fill < 2; fill++) {
        for (size_t i = 0; i < tree->n; i++) {
            for (uint32_t k = 0; k < awaiters(&tree->v[i]); k++) {
                size_t up = find(tree, tree->v[i].task.awaiter[k]);
                if (up == SIZE_MAX)
                    continue;
                if (fill)
                    tree->edges[tree->v[up].first + tree->v[up].children] = i;
                tree->v[up].children++;
            }
        }
        for (size_t i = 0, at = 0; i < tree->n && !fill; i++) {
            tree->v[i].first = at;
            at += tree->v[i].children;
            tree->v[i].children = 0;
        }
    }
    return 0;
}

static int tasks_of(struct tree *tree, const struct python *py) {
    struct pywalk_task *tasks = calloc(MAX_TASKS, sizeof *tasks);
    struct pywalk_frame *frames = calloc(MAX_FRAMES, sizeof *frames);
    struct cache *cache = cache_open(py->pw.mem);
    int rc = tasks && frames && cache ? 0 : -ENOMEM;

    tree->pw = py->pw;
    tree->pw.mem = (struct pywalk_mem){cache_read, cache};
    if (rc == 0)
        rc = pywalk_objects_init(&tree->ob, &tree->pw);
    if (rc == 0)
        rc = pywalk_tasks(&tree->ob, tasks, MAX_TASKS, &tree->more);
    if (rc > 0) {
        size_t n = (size_t)rc;
        qsort(tasks, n, sizeof *tasks, by_address);
        tree->v = calloc(n, sizeof *tree->v);
        rc = tree->v ? 0 : -ENOMEM;
        for (; rc == 0 && tree->n < n; tree->n++) {
            struct node *node = &tree->v[tree->n];
            node->task = tasks[tree->n];
            node->nframes = pywalk_task_frames(&tree->ob, &node->task, frames, MAX_FRAMES);
            if (node->nframes <= 0)
                continue;
            node->frames = malloc((size_t)node->nframes * sizeof *frames);
            if (node->frames)
                memcpy(node->frames, frames, (size_t)node->nframes * sizeof *frames);
            else
                rc = -ENOMEM;
        }
    }
    if (rc == 0)
        rc = turn(tree);
    tree->pw.mem = py->pw.mem;
    free(cache);
    free(frames);
    free(tasks);
    return rc;
}

static void tree_clear(struct tree *tree) {
    for (size_t i = 0; i < tree->n; i++)
        free(tree->v[i].frames);
    free(tree->v);
    free(tree->edges);
    tree->v = NULL;
    tree->edges = NULL;
    tree->n = 0;
}

/* ---- writing ---- */

static int code_of(struct tree *tree, const struct pywalk_frame *f, struct pywalk_position *at) {
    int rc = pywalk_code(&tree->pw, f->code, &tree->code);

    if (rc == 0)
        rc = pywalk_position(&tree->pw, &tree->code, f->lasti, at);
    if (rc != 0) {
        strcpy(tree->code.name, "?");
        strcpy(tree->code.file, "?");
        *at = (struct pywalk_position){0, 0, -1, -1};
    }
    return rc;
}

static void put_json(struct tree *tree, size_t i) {
    const struct node *node = &tree->v[i];
    struct text *t = &tree->t;
    struct pywalk_position at;

    text_add(t, "{\"id\":\"0x%llx\",\"name\":", (unsigned long long)node->task.task);
    text_json(t, node->task.name);
    text_add(t, ",\"state\":\"%s\",\"waits_on\":", states[node->task.state]);
    text_json(t, node->task.waits_on[0] ? node->task.waits_on : NULL);
    text_add(t, ",\"awaited_by\":[");
    for (uint32_t k = 0; k < awaiters(node); k++)
        text_add(t, "%s\"0x%llx\"", k ? "," : "", (unsigned long long)node->task.awaiter[k]);
    text_add(t, "],\"frames\":[");
    for (int k = 0; k < node->nframes; k++) {
        code_of(tree, &node->frames[k], &at);
        text_add(t, "%s{\"func\":", k ? "," : "");
        text_json(t, tree->code.name);
        text_add(t, ",\"file\":");
        text_json(t, tree->code.file);
        text_add(t, ",\"line\":%d}", at.line);
    }
    text_add(t, "]}");
}

static void put_text(struct tree *tree, size_t i, unsigned depth) {
    struct node *node = &tree->v[i];
    struct text *t = &tree->t;
    struct pywalk_position at;

    text_add(t, "  %*s", (int)depth * 4, "");
    if (depth > 0)
        text_add(t, "awaits ");
    text_add(t, "task \"");
    text_plain(t, node->task.name);
    text_add(t, "\"");
    if (node->shown) {
        text_add(t, ", see above\n");
        return;
    }
    node->shown = 1;
    text_add(t, ", %s", states[node->task.state]);
    if (node->task.waits_on[0]) {
        text_add(t, " for a ");
        text_plain(t, node->task.waits_on);
    }
    text_add(t, "\n");
    for (int k = 0; k < node->nframes; k++) {
        code_of(tree, &node->frames[k], &at);
        text_add(t, "  %*s  #%-3d ", (int)depth * 4, "", k);
        text_plain(t, tree->code.name);
        text_add(t, " (");
        text_plain(t, tree->code.file);
        if (at.line > 0)
            text_add(t, ":%d", at.line);
        text_add(t, ")\n");
    }
    for (size_t k = 0; k < node->children && depth < MAX_DEPTH; k++)
        put_text(tree, tree->edges[node->first + k], depth + 1);
}

static void put_all(struct tree *tree, int json, int *shown) {
    if (json) {
        for (size_t i = 0; i < tree->n; i++) {
            text_add(&tree->t, "%s", (*shown)++ ? "," : "");
            put_json(tree, i);
        }
        return;
    }
    /* First those that nobody awaits; what is left then awaits itself. */
    for (int rest = 0; rest < 2; rest++) {
        for (size_t i = 0; i < tree->n; i++) {
            int awaited = 0;
            for (uint32_t k = 0; k < awaiters(&tree->v[i]); k++)
                awaited |= find(tree, tree->v[i].task.awaiter[k]) != SIZE_MAX;
            if (tree->v[i].shown || (awaited && !rest))
                continue;
            put_text(tree, i, 0);
            (*shown)++;
        }
    }
    if (tree->more)
        text_add(&tree->t, "  (and more)\n");
}

char *tasks_read(const struct python *py, int npy, int json) {
    struct tree *tree = calloc(1, sizeof *tree);
    int rc = 0, shown = 0;
    char *out = NULL;

    if (!tree)
        return NULL;
    text_add(&tree->t, json ? "[" : "Asyncio tasks:\n");
    for (int p = 0; p < npy && rc != -ENOMEM; p++) {
        rc = tasks_of(tree, &py[p]);
        put_all(tree, json, &shown);
        tree_clear(tree);
    }
    if (json)
        text_add(&tree->t, "]");
    else if (!shown)
        text_add(&tree->t, "  (none%s)\n",
                 rc == -ENOTSUP  ? " that can be read: CPython 3.11 and later have them"
                 : rc == -ENOENT ? ": asyncio is not in use"
                                 : "");
    if (rc != -ENOMEM)
        out = text_take(&tree->t);
    text_free(&tree->t);
    free(tree);
    return out;
}
