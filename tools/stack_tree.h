/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack_tree.h - stacks of many processes merged into one tree, which process is on each branch.
 *
 *     struct stack_tree *t = stack_tree_new();
 *     stack_tree_add(t, who, frames, n, -1);   // frames[0] is the outermost; `who` in any order
 *     ... stack_tree_root(t), node->child ...
 *     stack_tree_free(t);
 *
 * A frame is a text, equal where the texts are; the tree keeps copies. Children are sorted by the number of those on them, fewest
 * first: who does what nobody else does comes first. Single-threaded.
 */
#ifndef PROBING_TOOLS_STACK_TREE_H
#define PROBING_TOOLS_STACK_TREE_H

#include <stdio.h>

struct stack_node {
    char *text;
    int *who; /* in ascending order after stack_tree_root() */
    unsigned nwho, whocap;
    struct stack_node *child; /* first */
    struct stack_node *next;  /* sibling */
    double
        waited; /* most seconds that one of them has been at this very stack, which ends here; < 0: none ends here */
};

struct stack_tree;

struct stack_tree *stack_tree_new(void); /* NULL: no memory */
void stack_tree_free(struct stack_tree *t);
/* `waited`: for how long it has been there; < 0: it runs. 0 or -ENOMEM. */
int stack_tree_add(struct stack_tree *t, int who, const char *const *frames, unsigned n,
                   double waited);
/* Sorts children and those on them; then the root, whose text is "". */
const struct stack_node *stack_tree_root(struct stack_tree *t);
/* "0-2,7,9-11" */
void stack_print_ranges(FILE *f, const struct stack_node *n);

#endif
