/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_name.h - finds the dotted name of a module that is called: Net.layers.3.attn.
 *
 *     struct node *n = node_find(up, self);              // hot: one table look-up
 *     if (!n) n = node_make(l, up, self);                // slow: walks _modules; NULL: it cannot be named
 *
 * A node is a module called from within another one (`up`; NULL: outermost), so a module shared by two parents has two names. The table is keyed by
 * the module's address and checked against a weak reference, so that a reused address is never mistaken for the old module. The walk goes along _modules from the
 * caller, else from the outermost module of this call, else from any module that was once outermost. `module.` of DDP and DataParallel,
 * `_orig_mod.` and the like are left out. A second root of one class is named Net#2, a module that is registered nowhere CALLER.(Class).
 *
 * The table owns the nodes; a node stays at least as long as its module lives. Everything here needs the GIL. No Python code is run except one property
 * of ScriptModules. Strong references are kept to weak reference objects only.
 */
#ifndef PROBING_AGENT_TORCH_NAME_H
#define PROBING_AGENT_TORCH_NAME_H

#include "agent/python/capi.h"
#include "agent/torch/torch_thread.h"

struct node {
    void *self, *weak;
    uint32_t serial, up; /* its own serial number, and its caller's (0: outermost) */
    uint32_t id;         /* id of its name in the trace */
    uint32_t edition;    /* of the dictionaries that have the name (struct torch_thread) */
    uint32_t name;       /* index of the name */
    uint32_t base;       /* index of the name that the names of modules within it begin with */
    uint32_t model;      /* outermost: index of the name of the model that it is, or is a part of */
    uint32_t row, after; /* torch_step.c: last row of calls without gradients; serial before it */
    uint8_t quiet;       /* layer_rate leaves it out */
    uint8_t bare;        /* neither parameters nor modules in it: a loss, an activation */
    uint8_t passed;      /* torch_step.c: it had a pass with gradients */
    uint8_t part;        /* outermost, but named as part of a root: model.encode(x) calls it */
    const void *by;      /* torch_step.c: the code of its last call without gradients, or NULL */
    const void *whole;   /* that root, or the module whose unseen call it is a part of; or NULL */
};

extern struct node **node_table; /* open addressing; NULL before the first */
extern uint32_t node_mask;

static inline uint32_t node_hash(uint32_t up, const void *self) {
    uint64_t h = ((uint64_t)(uintptr_t)self >> 4) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) ^ up * 0x85ebca6bu;
}

/* weak: the module itself, or None for the node of a module that is gone, whose address this one has now. */
static inline struct node *node_of(uint32_t up, const void *self, const void *weak) {
    if (!node_table)
        return NULL;
    for (uint32_t i = node_hash(up, self) & node_mask;; i = (i + 1) & node_mask) {
        struct node *n = node_table[i];
        if (!n || (n->self == self && n->up == up && capi_weak(n->weak) == weak))
            return n;
    }
}

static inline struct node *node_find(const struct node *up, const void *self) {
    return node_of(up ? up->serial : 0, self, self);
}

struct node *node_make(struct torch_thread *l, struct node *up, void *self);
/* Writes the name into the trace's dictionaries of this edition. Returns 1, or 0: no space just now. */
int node_write(struct node *n, uint32_t edition);
/* Returns where torch_step.c keeps which step trained the node's model last; 0 at first. */
uint64_t *node_trained(const struct node *n);
/* Whether its module, which is alive, is in evaluation mode: m.eval(). */
int node_evaluates(const struct node *n);
/* Whether `self`, a pointer for comparison only, is its module or a part of that. */
int node_holds(const struct node *n, const void *self);
/* Sets layer_rate, in millionths: the share of names that are recorded. It does not change nodes made before. */
void node_layer_rate(uint32_t millionths);

#endif
