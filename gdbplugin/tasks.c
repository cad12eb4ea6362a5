/* SPDX-License-Identifier: Apache-2.0 */
#include "stacks.h"

#include "agent/pywalk/tasks.h"
#include "text.h"

#define MAX_TASKS  20000
#define MAX_FRAMES 1000
#define MAX_DEPTH  100 /* depth of the tree; deeper tasks become roots of their own */

struct node {
    struct pywalk_task task;
    struct pywalk_frame *frames;
    int nframes;
    size_t first; /* index in tree.edges of the first task that it awaits; 0: none */
    int awaited, shown;
};

struct edge {
    size_t node, next;
};

struct tree {
    struct pywalk pw; /* reads through the cache */
    struct pywalk_objects ob;
    struct node *v;
    struct edge *edges;
    size_t n;
    int more;
    struct text *t;
    struct pywalk_code code;
};

static const char *const states[] = {"created", "waiting", "ready", "running"};

/* ---- reading ---- */

static int by_address(const void *a, const void *b) {
    const struct pywalk_task *x = a, *y = b;

    return x->task < y->task ? -1 : x->task > y->task;
}

static size_t find(const struct tree *tree, uint64_t task) {
    size_t at = ARRAY_BEFORE(i, tree->n, tree->v[i].task.task < task);

    return at < tree->n && tree->v[at].task.task == task ? at : SIZE_MAX;
}

static uint32_t awaiters(const struct node *node) {
    return node->task.awaiters < PYWALK_TASK_AWAITERS ? node->task.awaiters : PYWALK_TASK_AWAITERS;
}

/* Turns the relation "awaited by" into "awaits": lists in the order of the nodes. */
static int turn(struct tree *tree) {
    size_t n = 0;

    for (size_t i = 0; i < tree->n; i++)
        n += awaiters(&tree->v[i]);
    tree->edges = calloc(n + 1, sizeof *tree->edges);
    if (!tree->edges)
        return -ENOMEM;
    for (size_t i = tree->n, edge = 0; i-- > 0;) {
        for (uint32_t k = 0; k < awaiters(&tree->v[i]); k++) {
            size_t up = find(tree, tree->v[i].task.awaiter[k]);
            if (up == SIZE_MAX)
                continue;
            tree->edges[++edge] = (struct edge){i, tree->v[up].first};
            tree->v[up].first = edge;
            tree->v[i].awaited = 1;
        }
    }
    return 0;
}

static int tasks_of(struct tree *tree, const struct python *py) {
    AUTO_FREE struct pywalk_task *tasks = calloc(MAX_TASKS, sizeof *tasks);
    AUTO_FREE struct pywalk_frame *frames = calloc(MAX_FRAMES, sizeof *frames);
    AUTO_FREE struct pywalk_pages *cache = pywalk_pages_new(py->pw.mem);
    int rc = tasks && frames && cache ? 0 : -ENOMEM;

    tree->pw = py->pw;
    tree->pw.mem = (struct pywalk_mem){pywalk_pages_read, cache};
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
    return rc;
}

static void tree_clear(struct tree *tree) {
    for (size_t i = 0; i < tree->n; i++)
        free(tree->v[i].frames);
    free(tree->v);
    free(tree->edges);
}

/* ---- writing ---- */

static void code_of(struct tree *tree, const struct pywalk_frame *f, struct pywalk_position *at) {
    if (pywalk_code(&tree->pw, f->code, &tree->code) != 0 ||
        pywalk_position(&tree->pw, &tree->code, f->lasti, at) != 0) {
        strcpy(tree->code.name, "?");
        strcpy(tree->code.file, "?");
        *at = (struct pywalk_position){0, 0, -1, -1};
    }
}

static cJSON *task_json(struct tree *tree, const struct node *node) {
    cJSON *o = cJSON_CreateObject(), *list;
    struct pywalk_position at;

    cJSON_AddItemToObject(o, "id", json_address(node->task.task));
    json_text(o, "name", node->task.name);
    cJSON_AddStringToObject(o, "state", states[node->task.state]);
    json_text(o, "waits_on", node->task.waits_on[0] ? node->task.waits_on : NULL);
    list = cJSON_AddArrayToObject(o, "awaited_by");
    for (uint32_t k = 0; k < awaiters(node); k++)
        cJSON_AddItemToArray(list, json_address(node->task.awaiter[k]));
    list = cJSON_AddArrayToObject(o, "frames");
    for (int k = 0; k < node->nframes; k++) {
        cJSON *frame = cJSON_CreateObject();
        code_of(tree, &node->frames[k], &at);
        json_text(frame, "func", tree->code.name);
        json_text(frame, "file", tree->code.file);
        cJSON_AddNumberToObject(frame, "line", at.line);
        cJSON_AddItemToArray(list, frame);
    }
    return o;
}

static void put_text(struct tree *tree, size_t i, unsigned depth) {
    struct node *node = &tree->v[i];
    struct text *t = tree->t;
    struct pywalk_position at;

    text_add(t, "  %*s", (int)depth * 4, "");
    text_put(t, "%stask \"%q\"", depth > 0 ? "awaits " : "", node->task.name);
    if (node->shown) {
        text_put(t, ", see above\n");
        return;
    }
    node->shown = 1;
    text_put(t, ", %s%s%q\n", states[node->task.state], node->task.waits_on[0] ? " for a " : "",
             node->task.waits_on);
    for (int k = 0; k < node->nframes; k++) {
        code_of(tree, &node->frames[k], &at);
        text_add(t, "  %*s  #%-3d ", (int)depth * 4, "", k);
        text_put(t, "%q (%q", tree->code.name, tree->code.file);
        if (at.line > 0)
            text_put(t, ":%d", at.line);
        text_put(t, ")\n");
    }
    for (size_t k = node->first; k != 0 && depth < MAX_DEPTH; k = tree->edges[k].next)
        put_text(tree, tree->edges[k].node, depth + 1);
}

/* Writes the trees: first of tasks that nobody awaits; the remaining tasks await each other in cycles. Returns the number of roots. */
static int put_tree(struct tree *tree) {
    int roots = 0;

    for (int in_cycles = 0; in_cycles < 2; in_cycles++) {
        for (size_t i = 0; i < tree->n; i++) {
            if (tree->v[i].shown || (tree->v[i].awaited && !in_cycles))
                continue;
            put_text(tree, i, 0);
            roots++;
        }
    }
    if (tree->more)
        text_add(tree->t, "  (and more)\n");
    return roots;
}

char *tasks_read(const struct python *py, int npy, int json) {
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    struct text t = {0};
    int rc = 0, shown = 0;
    char *out;

    if (!json)
        text_add(&t, "Asyncio tasks:\n");
    for (int p = 0; p < npy && rc != -ENOMEM; p++) {
        struct tree tree = {.t = &t};
        rc = tasks_of(&tree, &py[p]);
        for (size_t i = 0; json && i < tree.n; i++)
            cJSON_AddItemToArray(list, task_json(&tree, &tree.v[i]));
        if (!json)
            shown += put_tree(&tree);
        tree_clear(&tree);
    }
    if (rc != -ENOMEM && !json && !shown)
        text_add(&t, "  (none%s)\n",
                 rc == -ENOTSUP  ? " that can be read: CPython 3.11 and later have them"
                 : rc == -ENOENT ? ": asyncio is not in use"
                                 : "");
    if (json)
        json_put(&t, list);
    out = text_take(&t);
    if (rc == -ENOMEM) {
        free(out);
        out = NULL;
    }
    return out;
}
