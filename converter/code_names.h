/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_names.h - the qualified names of functions that frames name by their plain ones (before Python 3.11): a program that makes
 * functions has a million of them, so each takes some 30 bytes and its text, once.
 *
 *     struct code_names c = {0};
 *     code_names_put(&c, "run", "a.py", 10, "Class.run");          // 0 or -ENOMEM; the first one holds
 *     const char *full = code_names_find(&c, "run", "a.py", 10);   // NULL: none; good until the next put
 *     code_names_at(&c, i, &name, &file, &firstline);              // i in 0..c.n - 1, in their order
 *     code_names_free(&c);
 */
#ifndef PROBING_CONVERTER_CODE_NAMES_H
#define PROBING_CONVERTER_CODE_NAMES_H

#include "keys.h"

struct code_name {
    uint64_t firstline;
    uint32_t file;                     /* its number in files */
    uint32_t full;                     /* in texts */
    uint32_t name;                     /* in texts: nearly always the end of `full` */
} __attribute__((packed, aligned(4))); /* 20 bytes, not 24 */

struct code_names {
    struct keys files;
    struct code_name *all;
    uint32_t n, cap;
    uint32_t *slots; /* index + 1 of all, 0 free; a power of two of them */
    size_t nslots;
    char *texts;
    size_t ntexts, texts_cap;
};

void code_names_free(struct code_names *c);
int code_names_put(struct code_names *c, const char *name, const char *file, uint64_t firstline,
                   const char *full);
const char *code_names_find(const struct code_names *c, const char *name, const char *file,
                            uint64_t firstline);
void code_names_at(const struct code_names *c, uint32_t i, const char **name, const char **file,
                   uint64_t *firstline);

#endif
