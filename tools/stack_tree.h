/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack_tree.h - merges the stacks of many processes into one tree, and records which processes are on each branch.
 *
 *     struct stack_tree *t = stack_tree_new();
 *     stack_tree_add(t, who, frames, n, -1);   // frames[0] is the outermost; any order of `who`
 *     ... stack_tree_root(t), node->child ...
 *     stack_tree_free(t);
 *
 * A frame is a text, and two frames are equal when their texts are; the tree keeps copies. Children are sorted by the number of processes
 * on them, fewest first, so that a process that does what no other does comes first. Single-threaded.
 */
#ifndef PROBING_TOOLS_STACK_TREE_H
#define PROBING_TOOLS_STACK_TREE_H

#include <stdio.h>

struct stack_node {
    char *text;
    int *who; /* in ascending order after stack_tree_root() */
    unsigned nwho, whocap;
    struct stack_node *child; /* first child */
    struct stack_node *next;  /* next sibling */
    double
        waited; /* the longest time in seconds that one of them has stayed at the stack that ends here; < 0: no stack ends here */
};

struct stack_tree;

struct stack_tree *stack_tree_new(void); /* NULL: no memory */
void stack_tree_free(struct stack_tree *t);
/* `waited`: how many seconds it has been at this stack; < 0: it is running. Returns 0 or -ENOMEM. */
int stack_tree_add(struct stack_tree *t, int who, const char *const *frames, unsigned n,
                   double waited);
/* Sorts the children, and the processes on them, and returns the root, whose text is "". */
const struct stack_node *stack_tree_root(struct stack_tree *t);
/* Prints the processes on a node as "0-2,7,9-11"; of more than `most` ranges the first ones, and how many processes are not in these. */
void stack_print_ranges(FILE *f, const struct stack_node *n, unsigned most);

#endif
