/* SPDX-License-Identifier: Apache-2.0 */
#include "locals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/object.h"

#define MAX_LOCALS 100
#define MAX_TEXT   4096
#define PAGES      256 /* of memory that are kept */

/* A frame's locals lie close together, and their types are the same few: most reads are answered from here. */
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

struct locals {
    struct pywalk pw; /* whose reads go through the cache */
    struct pywalk_objects ob;
    size_t *left;
    struct stack_frame *out;
    int rc;
    char text[MAX_TEXT];
    struct cache cache;
};

static int one(void *ctx, const struct pywalk_local *local) {
    struct locals *l = ctx;
    struct stack_local *v = &l->out->locals[l->out->nlocals];
    int n;

    if (*l->left == 0) {
        l->rc = -EDQUOT;
        return 1;
    }
    --*l->left;
    v->flags = local->flags;
    v->name = strdup(local->name);
    n = pywalk_type_name(&l->ob, local->object, l->text, sizeof l->text);
    v->type = n > 0 ? strdup(l->text) : NULL;
    n = pywalk_repr(&l->ob, local->object, NULL, l->text, sizeof l->text);
    v->value = strdup(n > 0 ? l->text : "?");
    l->out->nlocals++; /* frames_free() frees what is there */
    if (!v->name || !v->value)
        l->rc = -ENOMEM;
    return l->rc != 0;
}

struct locals *locals_open(const struct pywalk *pw, size_t *left) {
    struct locals *l = malloc(sizeof *l);

    if (!l)
        return NULL;
    for (size_t i = 0; i < PAGES; i++)
        l->cache.v[i].page = 0;
    l->cache.mem = pw->mem;
    l->pw = *pw;
    l->pw.mem = (struct pywalk_mem){cached_read, &l->cache};
    l->left = left;
    if (pywalk_objects_init(&l->ob, &l->pw) < 0) {
        free(l);
        return NULL;
    }
    return l;
}

int locals_read(struct locals *l, const struct pywalk_frame *frame, struct stack_frame *out) {
    int rc;

    if (!l)
        return -ENOTSUP;
    if (*l->left == 0)
        return -EDQUOT;
    out->locals = calloc(MAX_LOCALS, sizeof *out->locals);
    if (!out->locals)
        return -ENOMEM;
    l->out = out;
    l->rc = 0;
    rc = pywalk_locals(&l->ob, frame, MAX_LOCALS, one, l);
    out->has_locals = rc >= 0; /* what there is, if not all */
    return rc < 0 ? rc : l->rc;
}

void locals_close(struct locals *l) {
    free(l);
}
