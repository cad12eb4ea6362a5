/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - stacks that begin alike share their outer frames: for formats that write a stack as a frame and the stack around it.
 *
 *     struct export_tree *tree;
 *     int rc = export_tree_open(&tree, x);
 *     uint32_t node;
 *     rc = export_tree_stack(tree, sample.stack, &node);      // the innermost frame's
 *     for (uint32_t i = 0; i < export_tree_nodes(tree); i++)
 *         ... export_tree_node(tree, i)->parent, ->frame ...   // a parent has a lower number
 *     export_tree_close(tree);
 *
 * Nodes are numbered from 0 on as stacks come to it. Memory for the distinct stacks.
 */
#ifndef PROBING_TOOLS_EXPORT_TREE_H
#define PROBING_TOOLS_EXPORT_TREE_H

#include "stacks.h"

#define EXPORT_NO_NODE UINT32_MAX

struct export_node {
    uint32_t parent; /* EXPORT_NO_NODE: an outermost frame */
    const struct export_frame
        *frame; /* NULL: a stack that could not be read, or of which no frame is shown */
};

struct export_tree;
/* 0 or -errno; export_tree_close() in any case. */
int export_tree_open(struct export_tree **out, struct export *x);
void export_tree_close(struct export_tree *t);
/* Without nodes again: for a tree a thread. */
void export_tree_clear(struct export_tree *t);
/* 0 or -errno. */
int export_tree_stack(struct export_tree *t, int64_t stack, uint32_t *node);
uint32_t export_tree_nodes(const struct export_tree *t);
const struct export_node *export_tree_node(const struct export_tree *t, uint32_t i);
/* The stacks that it is made of. */
const struct export_stacks *export_tree_stacks(const struct export_tree *t);

#endif
