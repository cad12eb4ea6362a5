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
    int rc = get_count(r, addr + (uint64_t)r->f->ob_size, count);

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

void put_deque(struct render *r, uint64_t addr, const struct object_type *t) {
    const char *dot = strrchr(t->name, '.');
    struct ends e = {0};
    uint64_t count, block, at, item;
    int rc = read_ends(r, addr, &count, &e);

    put_clean(r, dot != NULL ? dot + 1 : t->name);
    if (rc != 0) {
        put(r, "(");
        put_error(r, rc, addr);
        put(r, ")");
        return;
    }
    if (count > 0 && !render_enter(r, addr)) {
        put(r, "([...])");
        return;
    }
    put(r, "([");
    block = e.left;
    at = e.first;
    for (uint64_t i = 0; rc == 0 && one_more(r, i, count); i++, at++) {
        if (at == BLOCK) {
            rc = get_pointer(r, block + 8 + BLOCK * 8, &block);
            at = 0;
        }
        if (rc == 0 && block == 0)
            rc = -EBADMSG;
        if (rc == 0)
            rc = get_pointer(r, block + 8 + at * 8, &item);
        if (rc == 0)
            render_object(r, item);
    }
    if (rc != 0)
        put_error(r, rc, addr);
    put(r, "]");
    if (e.most != UINT64_MAX)
        put_format(r, ", maxlen=%llu", (unsigned long long)e.most);
    put(r, ")");
    if (count > 0)
        render_leave(r);
}
