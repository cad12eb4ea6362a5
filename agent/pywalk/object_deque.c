/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collections.deque: a chain of blocks. No header of CPython has its structures, which have been the same since 3.2 (64
 * elements in a block); so what is read is believed only when the two ends, the number of elements and the
 * blocks between them agree.
 */
#include "object_render.h"

#define BLOCK 64 /* elements */

/* After the object's head, which ends in its size: the blocks at both ends, and the places of the first and the last
 * element in them; a count of changes; how many it may hold, -1: any number. A block: what is before it, its elements, what comes after it. */
struct ends {
    uint64_t left, right, first, last, state, most;
};

static int read_ends(struct render *r, uint64_t addr, uint64_t *count, struct ends *e) {
    int rc = obj_get_count(r, addr + (uint64_t)r->f->ob_size, count);

    if (rc == 0)
        rc = get(r, addr + (uint64_t)r->f->ob_size + 8, e, sizeof *e);
    if (rc != 0)
        return rc;
    if (!pywalk_plausible(e->left) || !pywalk_plausible(e->right) || e->first > BLOCK ||
        (int64_t)e->last < -1 || (int64_t)e->last >= BLOCK || (int64_t)e->most < -1 ||
        *count > e->most ||
        (*count > 0 && (e->first == BLOCK || (e->first + *count - 1) % BLOCK != e->last ||
                        (e->first + *count <= BLOCK) != (e->left == e->right))))
        return -EBADMSG;
    return 0;
}

void obj_put_deque(struct render *r, uint64_t addr, const struct object_type *t) {
    const char *dot = strrchr(t->name, '.');
    struct ends e = {0};
    uint64_t count, block, at, item;
    int rc = read_ends(r, addr, &count, &e);

    obj_put_clean(r, dot != NULL ? dot + 1 : t->name);
    if (rc != 0) {
        obj_put(r, "(");
        obj_put_error(r, rc, addr);
        obj_put(r, ")");
        return;
    }
    if (count > 0 && !obj_enter(r, addr)) {
        obj_put(r, "([...])");
        return;
    }
    obj_put(r, "([");
    block = e.left;
    at = e.first;
    for (uint64_t i = 0; rc == 0 && obj_more(r, i, count); i++, at++) {
        if (at == BLOCK) {
            rc = obj_get_pointer(r, block + 8 + BLOCK * 8, &block);
            at = 0;
        }
        if (rc == 0 && block == 0)
            rc = -EBADMSG;
        if (rc == 0)
            rc = obj_get_pointer(r, block + 8 + at * 8, &item);
        if (rc == 0)
            obj_render(r, item);
    }
    if (rc != 0)
        obj_put_error(r, rc, addr);
    obj_put(r, "]");
    if (e.most != UINT64_MAX)
        obj_put_format(r, ", maxlen=%llu", (unsigned long long)e.most);
    obj_put(r, ")");
    if (count > 0)
        obj_leave(r);
}
