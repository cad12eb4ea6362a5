/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fleet.h"

#define SWING 300.0 /* seconds of the slow swing of an oscillator's speed (temperature) */

struct node *nodes;

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t hash(enum purpose why, uint64_t a, uint64_t b, uint64_t c) {
    return mix(mix(mix(mix(opt.seed * 64 + why) + a) + b * 0x9e3779b97f4a7c15u) + c + 1);
}

double uniform(enum purpose why, uint64_t a, uint64_t b, uint64_t c) {
    return ((double)(hash(why, a, b, c) >> 12) + 0.5) / 4503599627370496.0;
}

double normal(enum purpose why, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t h = hash(why, a, b, c);
    double u = ((double)(h >> 32) + 0.5) / 4294967296.0,
           v = (double)(h & 0xffffffffu) / 4294967296.0;

    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

int clocks_make(void) {
    nodes = calloc(opt.nodes, sizeof *nodes);
    if (!nodes)
        return -ENOMEM;
    for (unsigned i = 0; i < opt.nodes; i++) {
        struct node *n = &nodes[i];
        uint64_t h = hash(FOR_BOOT, i, 1, 0), k = hash(FOR_BOOT, i, 2, 0);
        n->mono0 = (1000 + h % 1000000) * SECOND + k % SECOND;
        n->offset = (int64_t)((2 * uniform(FOR_CLOCK, i, 0, 0) - 1) * opt.offset * 1e9);
        n->drift = (2 * uniform(FOR_CLOCK, i, 1, 0) - 1) * opt.drift * 1e-6;
        n->wander = uniform(FOR_CLOCK, i, 2, 0) * opt.wander * 1e-6;
        if ((int)i == opt.broken_node)
            n->offset += (int64_t)(opt.broken_years * 365.25 * 86400) * SECOND;
        snprintf(n->name, sizeof n->name, "node%0*u", opt.nodes > 1000 ? 5 : 3, i);
        snprintf(n->boot_id, sizeof n->boot_id, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)h,
                 (unsigned)(h >> 48), (unsigned)(h >> 32) & 0xfff, (unsigned)(k >> 52),
                 (unsigned long long)(k & 0xffffffffffffu));
    }
    return 0;
}

unsigned node_of(unsigned rank) {
    return (unsigned)((uint64_t)rank * opt.nodes / opt.ranks);
}

unsigned local_rank(unsigned rank) {
    unsigned first = rank;

    while (first > 0 && node_of(first - 1) == node_of(rank))
        first--;
    return rank - first;
}

/* Returns how much of [0, t] the machine slept. */
static int64_t slept(unsigned node, int64_t t) {
    int64_t from = (int64_t)(opt.suspend_at * 1e9), n = (int64_t)(opt.suspend_s * 1e9);

    if ((int)node != opt.suspend_node || t <= from)
        return 0;
    return t - from < n ? t - from : n;
}

int64_t node_awake(unsigned node, int64_t t) {
    int64_t from = (int64_t)(opt.suspend_at * 1e9), n = (int64_t)(opt.suspend_s * 1e9);

    return (int)node == opt.suspend_node && t >= from && t < from + n ? from + n : t;
}

int64_t node_work(unsigned node, int64_t t, int64_t work) {
    int64_t from = (int64_t)(opt.suspend_at * 1e9), n = (int64_t)(opt.suspend_s * 1e9);

    if ((int)node == opt.suspend_node && t < from && t + work >= from)
        return t + work + n;
    return node_awake(node, t) + work;
}

/* Returns how far the node's oscillator has counted in `t` ns. */
static int64_t ticks(const struct node *n, int64_t t) {
    double s = (double)t * 1e-9;
    double extra = (double)t * n->drift +
                   n->wander * SWING / (2 * M_PI) * (1 - cos(2 * M_PI * s / SWING)) * 1e9;

    return t + (int64_t)extra;
}

uint64_t node_mono(unsigned node, int64_t t) {
    return nodes[node].mono0 + (uint64_t)ticks(&nodes[node], t - slept(node, t));
}

uint64_t node_boot(unsigned node, int64_t t) {
    return node_mono(node, t) + (uint64_t)slept(node, t);
}

uint64_t node_real(unsigned node, int64_t t) {
    const struct node *n = &nodes[node];
    int64_t real = EPOCH + n->offset + (int64_t)(node_boot(node, t) - n->mono0);

    if ((int)node == opt.step_node && t >= (int64_t)(opt.step_at * 1e9))
        real += (int64_t)(opt.step_s * 1e9);
    return (uint64_t)real;
}
