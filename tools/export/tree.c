/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../converter/keys.h"

struct export_tree {
    struct export_stacks *stacks;
    struct keys nodes;    /* struct export_node; a node's number is its id - 1 */
    struct keys of_stack; /* stacks seen; `innermost` has the node of each */
    uint32_t *innermost, cap;
};

int export_tree_open(struct export_tree **out, struct export *x) {
    struct export_tree *t = *out = calloc(1, sizeof *t);

    if (!t)
        return -ENOMEM;
    keys_init(&t->nodes);
    keys_init(&t->of_stack);
    return export_stacks_open(&t->stacks, x);
}

void export_tree_clear(struct export_tree *t) {
    keys_free(&t->nodes);
    keys_free(&t->of_stack);
    keys_init(&t->nodes);
    keys_init(&t->of_stack);
}

void export_tree_close(struct export_tree *t) {
    if (!t)
        return;
    export_stacks_close(t->stacks);
    keys_free(&t->nodes);
    keys_free(&t->of_stack);
    free(t->innermost);
    free(t);
}

static int child(struct export_tree *t, uint32_t parent, const struct export_frame *frame,
                 uint32_t *out) {
    struct export_node node;
    int is_new;

    memset(&node, 0, sizeof node); /* padding between its members is part of the key */
    node.parent = parent;
    node.frame = frame;
    *out = keys_put(&t->nodes, &node, sizeof node, &is_new) - 1;
    return *out == EXPORT_NO_NODE ? -ENOMEM : 0;
}

int export_tree_stack(struct export_tree *t, int64_t stack, uint32_t *node) {
    const struct export_frame *const *frame;
    int is_new, rc = 0;
    size_t n;
    uint32_t id = keys_put(&t->of_stack, &stack, sizeof stack, &is_new);

    if (!id)
        return -ENOMEM;
    if (!is_new) {
        *node = t->innermost[id - 1];
        return 0;
    }
    if (id > t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 1024,
                 *more = realloc(t->innermost, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        t->innermost = more;
        t->cap = cap;
    }
    *node = EXPORT_NO_NODE;
    if ((rc = export_stack(t->stacks, stack, &frame, &n)) < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = child(t, *node, frame[i], node);
    if (rc == 0 && n == 0)
        rc = child(t, EXPORT_NO_NODE, NULL, node);
    t->innermost[id - 1] = *node;
    return rc;
}

uint32_t export_tree_nodes(const struct export_tree *t) {
    return t->nodes.n;
}

const struct export_node *export_tree_node(const struct export_tree *t, uint32_t i) {
    size_t n;

    return keys_key(&t->nodes, i + 1, &n);
}

const struct export_stacks *export_tree_stacks(const struct export_tree *t) {
    return t->stacks;
}
