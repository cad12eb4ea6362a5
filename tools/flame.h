/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame.h - stacks merged into a tree of weights, and the tree as a picture or as text.
 *
 *     struct flame *f;
 *     flame_new(&f);
 *     uint32_t main = flame_child(f, FLAME_ROOT, flame_label(f, "main", "train.py", FLAME_USER));
 *     flame_add(f, flame_child(f, main, flame_label(f, "step", "train.py", FLAME_USER)), 12);
 *     flame_finish(f);
 *     flame_write_svg(f, &(struct flame_picture){.title = "train.py"}, stdout);
 *     flame_free(f);
 *
 * Node 0 is the root, and a parent's number is below its children's. A node is its parent plus a
 * label; a label is a function, its file and its kind, whatever the line. Weights are ticks of the
 * sampler. Out of memory is sticky: functions then return the root and flame_finish() says -ENOMEM.
 */
#ifndef PROBING_TOOLS_FLAME_H
#define PROBING_TOOLS_FLAME_H

#include <stdint.h>
#include <stdio.h>

#define FLAME_ROOT 0u

enum flame_kind {
    FLAME_GROUP,   /* all, a process, a thread */
    FLAME_USER,    /* Python code of the user's */
    FLAME_LIBRARY, /* Python code of the standard library or an installed package */
    FLAME_NATIVE,
    FLAME_NKINDS
};

struct flame_node {
    uint32_t label, parent;
    uint32_t child, next; /* first child, next sibling; 0 = none. In order after flame_finish() */
    uint64_t self;
    /* After flame_finish(): */
    uint64_t total; /* with all below */
    uint64_t x;     /* weight to the left of it */
    uint32_t depth; /* 0: the root */
};

struct flame_label {
    char *func, *file; /* owned by the tree; file may be "" */
    enum flame_kind kind;
    uint32_t line;        /* where most of it is; 0: not known */
    uint64_t line_weight; /* private */
    int shared;           /* after flame_finish(): others of the same name are in other files */
};

struct flame;

int flame_new(struct flame **out);
void flame_free(struct flame *f);
/* Number of the label, made when new. Texts are copied. */
uint32_t flame_label(struct flame *f, const char *func, const char *file, enum flame_kind kind);
/* That `weight` of this label is at this line of its file. */
void flame_line(struct flame *f, uint32_t label, uint32_t line, uint64_t weight);
/* The child of `parent` with this label, made when new. */
uint32_t flame_child(struct flame *f, uint32_t parent, uint32_t label);
void flame_add(struct flame *f, uint32_t node, uint64_t weight);
/* Sums up, drops branches without weight, puts siblings in order (heaviest first; groups as
 * they were made). 0 or -ENOMEM. */
int flame_finish(struct flame *f);

uint32_t flame_nodes(const struct flame *f);
const struct flame_node *flame_node(const struct flame *f, uint32_t i);
/* The name as it is shown: with the file where names are shared ("<module> (train.py)"). Returns buf. */
const char *flame_name(const struct flame_label *l, char *buf, size_t n);
const struct flame_label *flame_label_of(const struct flame *f, uint32_t node);
/* The depth that branches of at least `least` (> 0) weight reach. */
unsigned flame_depth(const struct flame *f, uint64_t least);

/* How a frame's share of all time changed: two recordings, and how much of that may be chance. */
struct flame_change {
    double a, b, noise; /* parts of 1 */
};

struct flame_picture {
    const char *title, *subtitle;
    double tick;  /* seconds a unit of weight stands for; 0: not known */
    double least; /* share of the whole below which a frame is left out (0.0001) */
    int icicle;   /* root at the top */
    const struct flame_change
        *change; /* of each node: the colours are these; NULL: one recording */
};
/* A self-contained SVG: readable without scripts, with zoom and search in a browser. */
void flame_write_svg(const struct flame *f, const struct flame_picture *p, FILE *out);
/* One line a stack, "a;b;c 12": outermost first, as other flame graph tools read it. 0 or -ENOMEM. */
int flame_write_folded(const struct flame *f, FILE *out);
/* A name as such a line may have it: no ';', no control characters, UTF-8 alone. */
void flame_put_folded(const char *text, FILE *out);

#endif
