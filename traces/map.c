/* SPDX-License-Identifier: Apache-2.0 */
#include "map.h"

#include <errno.h>
#include <stdlib.h>

static int grow(struct map *m) {
    struct map g = {.cap = m->cap ? m->cap * 2 : 64, .n = m->n};
    g.keys = calloc(g.cap, sizeof *g.keys + sizeof *g.numbers);
    if (!g.keys)
        return -ENOMEM;
    g.numbers = (uint32_t *)(g.keys + g.cap);
    for (uint32_t i = 0; i < m->cap; i++) {
        if (m->keys[i]) {
            uint32_t to = map_place(&g, m->keys[i]);
            g.keys[to] = m->keys[i];
            g.numbers[to] = m->numbers[i];
        }
    }
    map_free(m);
    *m = g;
    return 0;
}

int map_put(struct map *m, uint64_t key, uint32_t number) {
    int rc = m->n + 1 > m->cap / 4 * 3 ? grow(m) : 0;
    if (rc)
        return rc;
    uint32_t i = map_place(m, key);
    m->n += !m->keys[i];
    m->keys[i] = key;
    m->numbers[i] = number;
    return 0;
}

void map_free(struct map *m) {
    free(m->keys);
    *m = (struct map){0};
}
