/* SPDX-License-Identifier: Apache-2.0 */
#include "stack_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stack_tree {
    struct stack_node root;
};

struct stack_tree *stack_tree_new(void) {
    struct stack_tree *t = calloc(1, sizeof *t);

    if (t && !(t->root.text = strdup(""))) {
        free(t);
        t = NULL;
    }
    return t;
}

static void free_children(struct stack_node *n) {
    for (struct stack_node *c = n->child, *next; c; c = next) {
        next = c->next;
        free_children(c);
        free(c->text);
        free(c->who);
        free(c);
    }
}

void stack_tree_free(struct stack_tree *t) {
    if (!t)
        return;
    free_children(&t->root);
    free(t->root.text);
    free(t->root.who);
    free(t);
}

static int add_who(struct stack_node *n, int who) {
    if (n->nwho && n->who[n->nwho - 1] == who) /* added already: another thread of it */
        return 0;
    if (n->nwho == n->whocap) {
        unsigned cap = n->whocap ? n->whocap * 2 : 4;
        int *more = realloc(n->who, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        n->who = more;
        n->whocap = cap;
    }
    n->who[n->nwho++] = who;
    return 0;
}

static struct stack_node *child_of(struct stack_node *n, const char *text) {
    struct stack_node *c = n->child;

    while (c && strcmp(c->text, text) != 0)
        c = c->next;
    if (c)
        return c;
    if (!(c = calloc(1, sizeof *c)) || !(c->text = strdup(text))) {
        free(c);
        return NULL;
    }
    c->waited = -1;
    c->next = n->child;
    n->child = c;
    return c;
}

int stack_tree_add(struct stack_tree *t, int who, const char *const *frames, unsigned n,
                   double waited) {
    struct stack_node *at = &t->root;
    int rc = add_who(at, who);

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        if (!(at = child_of(at, frames[i])))
            return -ENOMEM;
        rc = add_who(at, who);
    }
    if (rc == 0 && waited > at->waited)
        at->waited = waited;
    return rc;
}

static int by_number(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b) {
    const struct stack_node *x = *(struct stack_node *const *)a,
                            *y = *(struct stack_node *const *)b;

    if (x->nwho != y->nwho)
        return x->nwho < y->nwho ? -1 : 1;
    return by_number(x->who, y->who);
}

static void sort(struct stack_node *n) {
    unsigned count = 0, unique = 0;

    qsort(n->who, n->nwho, sizeof *n->who, by_number);
    for (unsigned i = 0; i < n->nwho; i++) {
        if (!i || n->who[i] != n->who[i - 1])
            n->who[unique++] = n->who[i];
    }
    n->nwho = unique;
    for (struct stack_node *c = n->child; c; c = c->next, count++)
        sort(c);
    struct stack_node **all = count > 1 ? malloc(count * sizeof *all) : NULL;
    if (!all) /* without memory the children stay unsorted */
        return;
    unsigned i = 0;
    for (struct stack_node *c = n->child; c; c = c->next)
        all[i++] = c;
    qsort(all, count, sizeof *all, by_size);
    n->child = all[0];
    for (i = 0; i < count; i++)
        all[i]->next = i + 1 < count ? all[i + 1] : NULL;
    free(all);
}

const struct stack_node *stack_tree_root(struct stack_tree *t) {
    if (t->root.nwho)
        sort(&t->root);
    return &t->root;
}

void stack_print_ranges(FILE *f, const struct stack_node *n, unsigned most) {
    for (unsigned i = 0, k; i < n->nwho; i = k) {
        if (!most--) {
            fprintf(f, " and %u more", n->nwho - i);
            return;
        }
        for (k = i + 1; k < n->nwho && n->who[k] == n->who[k - 1] + 1; k++)
            ;
        fprintf(f, "%s%d", i ? "," : "", n->who[i]);
        if (k - i > 1)
            fprintf(f, "%c%d", k - i > 2 ? '-' : ',', n->who[k - 1]);
    }
}
