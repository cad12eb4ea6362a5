/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_names.h - the qualified names of functions, for frames that have plain names only (before Python 3.11). A program that creates
 * functions may have a million of them, so each takes some 30 bytes, and its text once.
 *
 *     struct code_names c = {0};
 *     code_names_put(&c, "run", "a.py", 10, "Class.run");          // 0 or -ENOMEM; a later put of the same function changes nothing
 *     const char *full = code_names_find(&c, "run", "a.py", 10);   // NULL: none; valid until the next put
 *     code_names_at(&c, i, &name, &file, &firstline);              // i in 0..c.n - 1, in the order of the puts
 *     code_names_free(&c);
 */
#ifndef PROBING_CONVERTER_CODE_NAMES_H
#define PROBING_CONVERTER_CODE_NAMES_H

#include "keys.h"

struct code_name {
    uint64_t firstline;
    uint32_t file;                     /* its number in files */
    uint32_t full;                     /* offset in `texts` */
    uint32_t name;                     /* offset in `texts`: nearly always of the end of `full` */
} __attribute__((packed, aligned(4))); /* 20 bytes, not 24 */

struct code_names {
    struct keys files;
    struct code_name *all;
    uint32_t n, cap;
    uint32_t *slots; /* hash table of a power of two entries: 1 + index in `all`; 0: free */
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
