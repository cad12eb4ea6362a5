/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame.h - merges stacks into a tree of weights, and writes the tree as a picture or as text.
 *
 *     struct flame *f;
 *     flame_new(&f);
 *     uint32_t main = flame_child(f, FLAME_ROOT, flame_label(f, "main", "train.py", FLAME_USER));
 *     flame_add(f, flame_child(f, main, flame_label(f, "step", "train.py", FLAME_USER)), 12);
 *     flame_finish(f);
 *     flame_write_svg(f, &(struct flame_picture){.title = "train.py"}, stdout);
 *     flame_free(f);
 *
 * Node 0 is the root, and a parent has a lower number than its children. A node is identified by its parent and its label; a label is a
 * function, its file and its kind, whatever the line. Weights are ticks of the sampler. Out of memory is sticky: functions then return the
 * root, and flame_finish() returns -ENOMEM.
 */
#ifndef PROBING_TOOLS_FLAME_H
#define PROBING_TOOLS_FLAME_H

#include <stdint.h>
#include <stdio.h>

#define FLAME_ROOT 0u

enum flame_kind {
    FLAME_GROUP,   /* "all", a process, a thread */
    FLAME_USER,    /* Python code of the user */
    FLAME_LIBRARY, /* Python code of the standard library or an installed package */
    FLAME_NATIVE,
    FLAME_NKINDS
};

struct flame_node {
    uint32_t label, parent;
    uint32_t child, next; /* first child, next sibling; 0 = none. In order after flame_finish() */
    uint64_t self;
    /* After flame_finish(): */
    uint64_t total; /* including all nodes below */
    uint64_t x;     /* weight to the left of the node */
    uint32_t depth; /* 0: the root */
};

struct flame_label {
    char *func, *file; /* owned by the tree; file may be "" */
    enum flame_kind kind;
    uint32_t line;        /* the line with most of its weight; 0: not known */
    uint64_t line_weight; /* private */
    /* after flame_finish(): there are labels with the same name in other files */
    int shared;
};

struct flame;

int flame_new(struct flame **out);
void flame_free(struct flame *f);
/* Returns the number of the label, made if it is new. Texts are copied. */
uint32_t flame_label(struct flame *f, const char *func, const char *file, enum flame_kind kind);
/* Records that `weight` of this label is at this line of its file. */
void flame_line(struct flame *f, uint32_t label, uint32_t line, uint64_t weight);
/* Returns the child of `parent` with this label, made if it is new. */
uint32_t flame_child(struct flame *f, uint32_t parent, uint32_t label);
void flame_add(struct flame *f, uint32_t node, uint64_t weight);
/* Sums up, drops branches without weight and sorts siblings (heaviest first; groups stay in the order in which they were made). Returns 0
 * or -ENOMEM. */
int flame_finish(struct flame *f);

uint32_t flame_nodes(const struct flame *f);
const struct flame_node *flame_node(const struct flame *f, uint32_t i);
/* Formats the name as it is shown: with the file when several labels share the name ("<module> (train.py)"). Returns buf. */
const char *flame_name(const struct flame_label *l, char *buf, size_t n);
const struct flame_label *flame_label_of(const struct flame *f, uint32_t node);
/* Returns the depth that branches of at least `least` (> 0) weight reach. */
unsigned flame_depth(const struct flame *f, uint64_t least);

/* A frame's share of all time in two recordings, and how much of the difference may be chance. */
struct flame_change {
    double a, b, noise; /* fractions of 1 */
};

struct flame_picture {
    const char *title, *subtitle;
    double tick;  /* seconds for each unit of weight; 0: not known */
    double least; /* frames below this share of the whole are left out (0.0001) */
    int icicle;   /* draw the root at the top */
    const struct flame_change
        *change; /* one for each node, shown by its colour; NULL: a single recording */
};
/* Writes a self-contained SVG: readable without scripts, with zoom and search in a browser. */
void flame_write_svg(const struct flame *f, const struct flame_picture *p, FILE *out);
/* Writes one line for each stack, "a;b;c 12", outermost frame first, as other flame graph tools read it. Returns 0 or -ENOMEM. */
int flame_write_folded(const struct flame *f, FILE *out);
/* Writes a name in the form allowed in such a line: no ';', no control characters, only valid UTF-8. */
void flame_put_folded(const char *text, FILE *out);

#endif
