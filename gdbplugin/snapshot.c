/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EACH (64u << 10)
#define ALL  (8u << 20)

int snapshot_take(struct stop *copy, const struct stop *s, const struct proc_maps *maps) {
    size_t each = s->n ? ALL / s->n : 0;

    *copy = (struct stop){.pid = s->pid};
    if (each > EACH)
        each = EACH;
    copy->v = calloc(s->n ? s->n : 1, sizeof *copy->v);
    copy->copies = calloc(s->n ? s->n : 1, sizeof *copy->copies);
    if (!copy->v || !copy->copies)
        return -ENOMEM;
    for (size_t i = 0; i < s->n; i++) {
        const struct proc_map *m = proc_maps_at(maps, s->v[i].regs.rsp);
        struct stop_copy *c = &copy->copies[copy->ncopies];

        copy->v[copy->n++] = s->v[i];
        copy->v[i].stopped = 0;
        if (!m)
            continue;
        c->addr = s->v[i].regs.rsp;
        c->n = m->end - c->addr < each ? (size_t)(m->end - c->addr) : each;
        c->bytes = malloc(c->n);
        if (!c->bytes)
            return -ENOMEM;
        copy->ncopies++;
        if (proc_read(s->pid, c->addr, c->bytes, c->n) < 0)
            c->n = 0;
    }
    return 0;
}

void snapshot_free(struct stop *copy) {
    for (size_t i = 0; i < copy->ncopies; i++)
        free(copy->copies[i].bytes);
    free(copy->copies);
    free(copy->v);
    *copy = (struct stop){0};
}
