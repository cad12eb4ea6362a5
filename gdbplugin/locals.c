/* SPDX-License-Identifier: Apache-2.0 */
#include "locals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pywalk/object.h"
#include "cache.h"

#define MAX_LOCALS 100
#define MAX_TEXT   4096

struct locals {
    struct pywalk pw; /* whose reads go through the cache */
    struct pywalk_objects ob;
    size_t *left;
    struct stack_frame *out;
    int rc;
    char text[MAX_TEXT];
    struct cache *cache; /* a frame's locals lie close together, and their types are the same few */
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
    l->cache = cache_open(pw->mem);
    l->pw = *pw;
    l->pw.mem = (struct pywalk_mem){cache_read, l->cache};
    l->left = left;
    if (!l->cache || pywalk_objects_init(&l->ob, &l->pw) < 0) {
        locals_close(l);
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
    if (l)
        free(l->cache);
    free(l);
}
