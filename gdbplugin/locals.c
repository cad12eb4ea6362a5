/* SPDX-License-Identifier: Apache-2.0 */
#include "locals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/object.h"

#define MAX_LOCALS 100
#define MAX_TEXT   4096
#define PAGES      64 /* of memory that are kept while one frame is read */

/* One frame's locals lie close together, and their types are the same few: most reads are answered from here. */
struct cache {
    struct pywalk_mem mem;
    struct {
        uint64_t page; /* its address; 0: empty */
        uint8_t bytes[4096];
    } v[PAGES];
};

static int cached_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct cache *c = ctx;
    uint8_t *to = buf;

    while (n > 0) {
        uint64_t page = addr & ~4095ull;
        size_t at = addr & 4095, some = 4096 - at < n ? 4096 - at : n;
        size_t slot = (page >> 12) % PAGES;

        if (page == 0)
            return -EFAULT;
        if (c->v[slot].page != page) {
            c->v[slot].page = 0;
            /* A core may hold a part of a page. */
            if (c->mem.read(c->mem.ctx, page, c->v[slot].bytes, 4096) != 0) {
                if (c->mem.read(c->mem.ctx, addr, to, some) != 0)
                    return -EFAULT;
                goto next;
            }
            c->v[slot].page = page;
        }
        memcpy(to, c->v[slot].bytes + at, some);
    next:
        to += some;
        addr += some;
        n -= some;
    }
    return 0;
}

struct reader {
    const struct pywalk_objects *ob;
    struct stack_frame *out;
    size_t *left;
    int rc;
    char text[MAX_TEXT];
};

static int one(void *ctx, const struct pywalk_local *local) {
    struct reader *r = ctx;
    struct stack_local *v = &r->out->locals[r->out->nlocals];
    int n;

    if (*r->left == 0) {
        r->rc = -EDQUOT;
        return 1;
    }
    --*r->left;
    v->flags = local->flags;
    v->name = strdup(local->name);
    n = pywalk_type_name(r->ob, local->object, r->text, sizeof r->text);
    v->type = n > 0 ? strdup(r->text) : NULL;
    n = pywalk_repr(r->ob, local->object, NULL, r->text, sizeof r->text);
    v->value = strdup(n > 0 ? r->text : "?");
    r->out->nlocals++; /* frames_free() frees what is there */
    if (!v->name || !v->value)
        r->rc = -ENOMEM;
    return r->rc != 0;
}

int locals_read(const struct pywalk *pw, const struct pywalk_frame *frame, size_t *left,
                struct stack_frame *out) {
    struct cache *cache = malloc(sizeof *cache);
    struct reader *r = malloc(sizeof *r);
    struct pywalk own = *pw;
    struct pywalk_objects ob;
    int rc = -ENOMEM;

    if (!cache || !r)
        goto out;
    cache->mem = pw->mem;
    for (size_t i = 0; i < PAGES; i++)
        cache->v[i].page = 0;
    own.mem = (struct pywalk_mem){cached_read, cache};
    out->locals = calloc(MAX_LOCALS, sizeof *out->locals);
    rc = out->locals ? pywalk_objects_init(&ob, &own) : -ENOMEM;
    if (rc < 0)
        goto out;
    *r = (struct reader){.ob = &ob, .out = out, .left = left};
    rc = pywalk_locals(&ob, frame, MAX_LOCALS, one, r);
    if (rc >= 0 && r->rc != 0)
        rc = r->rc;
    out->has_locals = rc >= 0;
out:
    free(cache);
    free(r);
    return rc < 0 ? rc : 0;
}
