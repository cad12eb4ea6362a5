/* SPDX-License-Identifier: Apache-2.0 */
#include "flame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/hash.h"
#include "../traces/utf8.h"
#include "../traces/visible.h"

struct flame {
    struct flame_node *node;
    struct flame_label *label;
    uint32_t nnodes, nlabels, node_cap, label_cap;
    uint32_t *node_slots, *label_slots; /* hash tables with open addressing: index + 1, 0 = empty */
    uint32_t node_mask, label_mask;
    int failed;
};

static uint64_t mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    return h;
}

static uint64_t hash_label(const char *func, const char *file, int kind) {
    return mix(hash_text(hash_text(HASH_START + (uint64_t)kind, func) * 31, file));
}

static uint64_t hash_node(uint32_t parent, uint32_t label) {
    return mix((uint64_t)parent << 32 | label);
}

/* Doubles the space of an array and rebuilds its hash table; hash() returns the hash of element i. */
static int grow(struct flame *f, void **array, size_t item, uint32_t *cap, uint32_t **slots,
                uint32_t *mask, uint32_t n, uint64_t (*hash)(const struct flame *, uint32_t)) {
    uint32_t bigger = *cap ? *cap * 2 : 256;
    uint32_t new_mask = bigger * 2 - 1;
    void *p = bigger < (1u << 30) ? realloc(*array, bigger * item) : NULL;

    if (!p)
        return -ENOMEM;
    *array = p;
    uint32_t *s = calloc((size_t)new_mask + 1, sizeof *s);
    if (!s)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t h = hash(f, i);
        while (s[h & new_mask])
            h++;
        s[h & new_mask] = i + 1;
    }
    free(*slots);
    *slots = s;
    *mask = new_mask;
    *cap = bigger;
    return 0;
}

static uint64_t rehash_node(const struct flame *f, uint32_t i) {
    return hash_node(f->node[i].parent, f->node[i].label);
}

static uint64_t rehash_label(const struct flame *f, uint32_t i) {
    return hash_label(f->label[i].func, f->label[i].file, f->label[i].kind);
}

int flame_new(struct flame **out) {
    struct flame *f = calloc(1, sizeof *f);

    if (!f)
        return -ENOMEM;
    uint32_t root = flame_label(f, "all", "", FLAME_GROUP);
    if (f->failed || grow(f, (void **)&f->node, sizeof *f->node, &f->node_cap, &f->node_slots,
                          &f->node_mask, 0, rehash_node) < 0) {
        flame_free(f);
        return -ENOMEM;
    }
    /* The root gets no slot in the hash table: it is never looked up. */
    f->node[0] = (struct flame_node){.label = root};
    f->nnodes = 1;
    *out = f;
    return 0;
}

void flame_free(struct flame *f) {
    if (!f)
        return;
    for (uint32_t i = 0; i < f->nlabels; i++) {
        free(f->label[i].func);
        free(f->label[i].file);
    }
    free(f->label);
    free(f->node);
    free(f->label_slots);
    free(f->node_slots);
    free(f);
}

uint32_t flame_label(struct flame *f, const char *func, const char *file, enum flame_kind kind) {
    uint64_t h = hash_label(func, file, kind);
    uint32_t at;

    if (f->nlabels == f->label_cap &&
        grow(f, (void **)&f->label, sizeof *f->label, &f->label_cap, &f->label_slots,
             &f->label_mask, f->nlabels, rehash_label) < 0)
        goto failed;
    for (; (at = f->label_slots[h & f->label_mask]); h++) {
        const struct flame_label *l = &f->label[at - 1];
        if (l->kind == kind && !strcmp(l->func, func) && !strcmp(l->file, file))
            return at - 1;
    }
    struct flame_label l = {.func = strdup(func), .file = strdup(file), .kind = kind};
    if (!l.func || !l.file) {
        free(l.func);
        free(l.file);
        goto failed;
    }
    f->label[f->nlabels] = l;
    f->label_slots[h & f->label_mask] = f->nlabels + 1;
    return f->nlabels++;
failed:
    f->failed = 1;
    return 0;
}

uint32_t flame_child(struct flame *f, uint32_t parent, uint32_t label) {
    uint64_t h = hash_node(parent, label);
    uint32_t at;

    if (f->failed)
        return FLAME_ROOT;
    if (f->nnodes == f->node_cap &&
        grow(f, (void **)&f->node, sizeof *f->node, &f->node_cap, &f->node_slots, &f->node_mask,
             f->nnodes, rehash_node) < 0) {
        f->failed = 1;
        return FLAME_ROOT;
    }
    for (; (at = f->node_slots[h & f->node_mask]); h++) {
        /* at == 1 is the root, which gets a slot when the table grows: it is nobody's child. */
        if (at > 1 && f->node[at - 1].parent == parent && f->node[at - 1].label == label)
            return at - 1;
    }
    f->node[f->nnodes] =
        (struct flame_node){.parent = parent, .label = label, .next = f->node[parent].child};
    f->node[parent].child = f->nnodes;
    f->node_slots[h & f->node_mask] = f->nnodes + 1;
    return f->nnodes++;
}

void flame_add(struct flame *f, uint32_t node, uint64_t weight) {
    f->node[node].self += weight;
}

struct order {
    const struct flame *f;
    uint32_t node;
};

static int heavier(const void *a, const void *b) {
    const struct order *x = a, *y = b;
    const struct flame_node *m = &x->f->node[x->node], *n = &y->f->node[y->node];
    int rc;

    const struct flame_label *p = &x->f->label[m->label], *q = &y->f->label[n->label];
    if (p->kind == FLAME_GROUP && q->kind == FLAME_GROUP) /* groups keep the order they came in */
        return x->node < y->node ? -1 : 1;
    if (m->total != n->total)
        return m->total > n->total ? -1 : 1;
    if ((rc = strcmp(p->func, q->func)) || (rc = strcmp(p->file, q->file)))
        return rc;
    return (int)p->kind - (int)q->kind;
}

static int by_name(const void *a, const void *b) {
    const struct flame_label *const *x = a, *const *y = b;
    /* Native and Python code are sorted apart: their colours differ, so that they may have the same names. */
    int order = ((*x)->kind == FLAME_NATIVE) - ((*y)->kind == FLAME_NATIVE);

    if (!order)
        order = strcmp((*x)->func, (*y)->func);

    return order ? order : strcmp((*x)->file, (*y)->file);
}

/* Marks those labels in the tree whose name occurs in several files. */
static int mark_shared(struct flame *f) {
    struct flame_label **list = calloc((size_t)f->nlabels + 1, sizeof(struct flame_label *));
    char *used = calloc((size_t)f->nlabels + 1, 1);
    size_t n = 0;

    for (uint32_t i = 0; list && used && i < f->nnodes; i++) {
        uint32_t l = f->node[i].label;
        if (f->node[i].total && !used[l] && *f->label[l].file) {
            used[l] = 1;
            list[n++] = &f->label[l];
        }
    }
    if (n)
        qsort(list, n, sizeof *list, by_name);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(list[i]->func, list[i - 1]->func) == 0 &&
            strcmp(list[i]->file, list[i - 1]->file) != 0 &&
            (list[i]->kind == FLAME_NATIVE) == (list[i - 1]->kind == FLAME_NATIVE))
            list[i]->shared = list[i - 1]->shared = 1;
    }
    int rc = list && used ? 0 : -ENOMEM;
    free(used);
    free(list);
    return rc;
}

int flame_finish(struct flame *f) {
    struct order *list = malloc(f->nnodes * sizeof *list);

    if (!list)
        f->failed = 1;
    if (f->failed) {
        free(list);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < f->nnodes; i++)
        f->node[i].total = f->node[i].self;
    /* Children have higher numbers than their parents: one pass from the end sums up the weights, one from the start places the frames. */
    for (uint32_t i = f->nnodes; i-- > 1;)
        f->node[f->node[i].parent].total += f->node[i].total;
    for (uint32_t i = 0; i < f->nnodes; i++) {
        size_t n = 0;
        for (uint32_t c = f->node[i].child; c; c = f->node[c].next) {
            if (f->node[c].total)
                list[n++] = (struct order){f, c};
        }
        qsort(list, n, sizeof *list, heavier);
        f->node[i].child = n ? list[0].node : 0;
        uint64_t x = f->node[i].x;
        for (size_t k = 0; k < n; k++) {
            struct flame_node *child = &f->node[list[k].node];
            child->next = k + 1 < n ? list[k + 1].node : 0;
            child->depth = f->node[i].depth + 1;
            child->x = x;
            x += child->total;
        }
    }
    free(list);
    return mark_shared(f);
}

const char *flame_name(const struct flame_label *l, char *buf, size_t n) {
    const char *base = strrchr(l->file, '/');

    /* Every package has an __init__.py: show the folder as well. */
    if (base && strcmp(base, "/__init__.py") == 0) {
        while (base > l->file && base[-1] != '/')
            base--;
        base -= base > l->file;
    }
    if (l->shared)
        snprintf(buf, n, "%s (%s)", l->func, base ? base + 1 : l->file);
    else
        snprintf(buf, n, "%s", l->func);
    return buf;
}

void flame_line(struct flame *f, uint32_t label, uint32_t line, uint64_t weight) {
    struct flame_label *l = &f->label[label];

    if (weight > l->line_weight) {
        l->line_weight = weight;
        l->line = line;
    }
}

const struct flame_node *flame_node(const struct flame *f, uint32_t i) {
    return &f->node[i];
}

const struct flame_label *flame_label_of(const struct flame *f, uint32_t node) {
    return &f->label[f->node[node].label];
}

uint32_t flame_nodes(const struct flame *f) {
    return f->nnodes;
}

unsigned flame_depth(const struct flame *f, uint64_t least) {
    unsigned deepest = 0;

    for (uint32_t i = 0; i < f->nnodes; i++) {
        if (f->node[i].total >= least && f->node[i].depth > deepest)
            deepest = f->node[i].depth;
    }
    return deepest;
}

/* ---- folded text ---- */

/* ';' separates frames and a line's end ends a stack, so both are replaced in names. So are characters that control a terminal or change
 * the direction of writing. */
void flame_put_folded(const char *text, FILE *out) {
    const unsigned char *p = (const unsigned char *)text;
    uint32_t c = 0;

    for (size_t n = strlen(text), len; n; p += len, n -= len) {
        len = utf8_char(p, n, &c);
        if (*p < 0x20 || *p == ';')
            fputc(*p == ';' ? ':' : ' ', out);
        else if (len && visible_char(c))
            fwrite(p, 1, len, out);
        else
            fputs("\xef\xbf\xbd", out);
        len = len ? len : 1;
    }
}

int flame_write_folded(const struct flame *f, FILE *out) {
    uint32_t *path = malloc((flame_depth(f, 1) + 1) * sizeof *path);
    uint32_t i = f->node[FLAME_ROOT].child;
    unsigned n = 0;

    if (!path)
        return -ENOMEM;
    while (i) {
        path[n++] = i;
        if (f->node[i].self) {
            for (unsigned k = 0; k < n; k++) {
                const struct flame_label *l = flame_label_of(f, path[k]);
                if (k)
                    fputc(';', out);
                flame_put_folded(l->func, out);
                if (*l->file && l->kind != FLAME_GROUP) {
                    const char *slash = strrchr(l->file, '/');
                    fputs(" (", out);
                    flame_put_folded(slash && slash[1] ? slash + 1 : l->file, out);
                    fputc(')', out);
                }
            }
            fprintf(out, " %llu\n", (unsigned long long)f->node[i].self);
        }
        if (f->node[i].child) {
            i = f->node[i].child;
            continue;
        }
        while (n && !f->node[path[n - 1]].next)
            n--;
        i = n ? f->node[path[--n]].next : 0;
    }
    free(path);
    return 0;
}
