/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - a tree of stacks, in which stacks with the same outer frames share them, for formats that write a stack as a frame and its
 * parent stack.
 *
 *     struct export_tree *tree;
 *     int rc = export_tree_open(&tree, x);
 *     uint32_t node;
 *     rc = export_tree_stack(tree, sample.stack, &node);      // the node of the innermost frame
 *     for (uint32_t i = 0; i < export_tree_nodes(tree); i++)
 *         ... export_tree_node(tree, i)->parent, ->frame ...   // a parent has a lower number
 *     export_tree_close(tree);
 *
 * Nodes are numbered from 0 on, in the order in which stacks come. It takes memory for the distinct stacks.
 */
#ifndef PROBING_TOOLS_EXPORT_TREE_H
#define PROBING_TOOLS_EXPORT_TREE_H

#include "stacks.h"

#define EXPORT_NO_NODE UINT32_MAX

struct export_node {
    uint32_t parent; /* EXPORT_NO_NODE: an outermost frame */
    const struct export_frame
        *frame; /* NULL: a stack that could not be read, or that shows no frame */
};

struct export_tree;
/* Returns 0 or -errno. Call export_tree_close() in any case. */
int export_tree_open(struct export_tree **out, struct export *x);
void export_tree_close(struct export_tree *t);
/* Removes all nodes, for formats with one tree per thread. */
void export_tree_clear(struct export_tree *t);
/* 0 or -errno. */
int export_tree_stack(struct export_tree *t, int64_t stack, uint32_t *node);
uint32_t export_tree_nodes(const struct export_tree *t);
const struct export_node *export_tree_node(const struct export_tree *t, uint32_t i);
/* Returns the stacks that the tree is made from. */
const struct export_stacks *export_tree_stacks(const struct export_tree *t);

#endif
