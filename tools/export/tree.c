/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <errno.h>
#include <stdlib.h>

struct export_tree {
    struct export_stacks *stacks;
    struct export_node *node;
    uint32_t n, room;
    uint32_t *slot; /* of a hash of parent and frame: number + 1 */
    uint32_t mask;
    uint32_t *of_stack; /* number + 1 */
};

int export_tree_open(struct export_tree **out, struct export *x) {
    struct export_tree *t = *out = calloc(1, sizeof *t);
    int rc = t ? export_stacks_open(&t->stacks, x) : -ENOMEM;

    if (rc == 0 &&
        !(t->of_stack = calloc((size_t)export_stacks_max(t->stacks) + 1, sizeof *t->of_stack)))
        rc = -ENOMEM;
    return rc;
}

void export_tree_close(struct export_tree *t) {
    if (!t)
        return;
    export_stacks_close(t->stacks);
    free(t->node);
    free(t->slot);
    free(t->of_stack);
    free(t);
}

static uint32_t *find(const struct export_tree *t, uint32_t parent,
                      const struct export_frame *frame) {
    uint64_t h = ((uint64_t)parent * 0x9e3779b97f4a7c15ull) ^
                 ((uint64_t)(frame ? frame->id : 0) * 0xc2b2ae3d27d4eb4full);

    for (h ^= h >> 29;; h++) {
        uint32_t *slot = &t->slot[h & t->mask];
        if (!*slot || (t->node[*slot - 1].parent == parent && t->node[*slot - 1].frame == frame))
            return slot;
    }
}

static int grow(struct export_tree *t) {
    uint32_t room = t->room ? t->room * 2 : 1024;
    struct export_node *node = realloc(t->node, room * sizeof *node);
    uint32_t *slot = calloc(room * 2ul, sizeof *slot);

    if (node)
        t->node = node;
    if (!node || !slot || room > UINT32_MAX / 4) {
        free(slot);
        return -ENOMEM;
    }
    free(t->slot);
    t->room = room;
    t->slot = slot;
    t->mask = room * 2 - 1;
    for (uint32_t i = 0; i < t->n; i++)
        *find(t, t->node[i].parent, t->node[i].frame) = i + 1;
    return 0;
}

static int child(struct export_tree *t, uint32_t parent, const struct export_frame *frame,
                 uint32_t *out) {
    uint32_t *slot;

    if (t->n == t->room && grow(t) < 0)
        return -ENOMEM;
    slot = find(t, parent, frame);
    if (!*slot) {
        t->node[t->n] = (struct export_node){parent, frame};
        *slot = ++t->n;
    }
    *out = *slot - 1;
    return 0;
}

int export_tree_stack(struct export_tree *t, int64_t stack, uint32_t *node) {
    const struct export_frame *const *frame;
    size_t n;
    int rc = 0;

    if (stack < 0 || stack > export_stacks_max(t->stacks))
        stack = 0;
    if (t->of_stack[stack]) {
        *node = t->of_stack[stack] - 1;
        return 0;
    }
    if ((rc = export_stack(t->stacks, stack, &frame, &n)) < 0)
        return rc;
    *node = EXPORT_NO_NODE;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = child(t, *node, frame[i], node);
    if (rc == 0 && n == 0)
        rc = child(t, EXPORT_NO_NODE, NULL, node);
    if (rc == 0)
        t->of_stack[stack] = *node + 1;
    return rc;
}

uint32_t export_tree_nodes(const struct export_tree *t) {
    return t->n;
}

const struct export_node *export_tree_node(const struct export_tree *t, uint32_t i) {
    return &t->node[i];
}

struct export_stacks *export_tree_stacks(struct export_tree *t) {
    return t->stacks;
}
