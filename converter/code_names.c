/* SPDX-License-Identifier: Apache-2.0 */
#include "code_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void code_names_free(struct code_names *c) {
    keys_free(&c->files);
    free(c->all);
    free(c->slots);
    free(c->texts);
    memset(c, 0, sizeof *c);
}

/* Returns the slot that has such a name, or a free slot. There always is one. */
static uint32_t *slot_of(const struct code_names *c, const char *name, uint32_t file,
                         uint64_t firstline) {
    uint64_t h = (firstline ^ (uint64_t)file << 40) * 0xff51afd7ed558ccdu;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x9e3779b97f4a7c15u;
    for (size_t i = (h ^ h >> 32) & (c->nslots - 1);; i = (i + 1) & (c->nslots - 1)) {
        const struct code_name *k = c->slots[i] ? &c->all[c->slots[i] - 1] : NULL;
        if (!k ||
            (k->firstline == firstline && k->file == file && strcmp(c->texts + k->name, name) == 0))
            return &c->slots[i];
    }
}

/* Makes space for one more name. Returns 0 or -ENOMEM. */
static int make_space(struct code_names *c, size_t text) {
    if (c->n == c->cap) {
        uint32_t cap = c->cap + c->cap / 2 + 64;
        struct code_name *all = cap > c->cap ? realloc(c->all, cap * sizeof *all) : NULL;
        if (!all)
            return -ENOMEM;
        c->all = all;
        c->cap = cap;
    }
    if (c->ntexts + text > c->texts_cap) {
        size_t cap = c->texts_cap + c->texts_cap / 2 + text + 4096;
        char *texts = cap < UINT32_MAX ? realloc(c->texts, cap) : NULL;
        if (!texts)
            return -ENOMEM;
        c->texts = texts;
        c->texts_cap = cap;
    }
    if (c->n * (size_t)4 < c->nslots * 3)
        return 0;
    size_t nslots = c->nslots ? c->nslots * 2 : 64;
    uint32_t *slots = calloc(nslots, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    free(c->slots);
    c->slots = slots;
    c->nslots = nslots;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct code_name *k = &c->all[i];
        *slot_of(c, c->texts + k->name, k->file, k->firstline) = i + 1;
    }
    return 0;
}

int code_names_put(struct code_names *c, const char *name, const char *file, uint64_t firstline,
                   const char *full) {
    size_t n = strlen(name), f = strlen(full);
    uint32_t in = keys_put(&c->files, file, strlen(file) + 1, NULL);

    if (!in || make_space(c, n + f + 2) != 0)
        return -ENOMEM;
    uint32_t *slot = slot_of(c, name, in, firstline);
    if (*slot)
        return 0;
    struct code_name *k = &c->all[c->n];
    *k = (struct code_name){.firstline = firstline, .file = in, .full = (uint32_t)c->ntexts};
    memcpy(c->texts + c->ntexts, full, f + 1);
    c->ntexts += f + 1;
    k->name = (uint32_t)(c->ntexts - n - 1);
    if (f < n || strcmp(full + f - n, name) != 0) {
        k->name = (uint32_t)c->ntexts;
        memcpy(c->texts + c->ntexts, name, n + 1);
        c->ntexts += n + 1;
    }
    *slot = ++c->n;
    return 0;
}

const char *code_names_find(const struct code_names *c, const char *name, const char *file,
                            uint64_t firstline) {
    uint32_t in = c->n ? keys_find(&c->files, file, strlen(file) + 1) : 0;
    uint32_t i = in ? *slot_of(c, name, in, firstline) : 0;

    return i ? c->texts + c->all[i - 1].full : NULL;
}

void code_names_at(const struct code_names *c, uint32_t i, const char **name, const char **file,
                   uint64_t *firstline) {
    *firstline = c->all[i].firstline;
    *name = c->texts + c->all[i].name;
    *file = keys_key(&c->files, c->all[i].file, NULL);
}
