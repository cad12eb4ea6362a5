/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack_print.h - prints a merged tree of stacks (stack_tree.h), for people or as JSON.
 *
 *     struct stack_who who = {.by_pid = 0};          // says what the numbers on the branches are
 *     stack_print(stdout, stack_tree_root(t), &who);
 *
 * JSON: nested objects {frame, count, ranks, waited, children}; the outermost one also has `by`, "rank" or "process". With `names`, the
 * numbers are indices into the names, and `ranks` is a list.
 */
#ifndef PROBING_TOOLS_STACK_PRINT_H
#define PROBING_TOOLS_STACK_PRINT_H

#include <stdio.h>

#include "stack_tree.h"

struct stack_who {
    int by_pid;               /* the numbers are processes, not ranks */
    const char *const *names; /* indexed by the numbers; NULL: print the numbers themselves */
};

void stack_print(FILE *f, const struct stack_node *root, const struct stack_who *who);
void stack_print_json(FILE *f, const struct stack_node *root, const struct stack_who *who);
/* Prints {by, nodes: [{parent, frame, count, ranks, waited}]}, the root first and each node after its parent. Readers of JSON accept only
 * some hundred levels of nesting, and stacks have more. */
void stack_print_flat(FILE *f, const struct stack_node *root, const struct stack_who *who);

#endif
