/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callsites.h - the functions, frames and call stacks of a whole database, each once.
 *
 * A call stack is a path in a trie: a callsite is a frame (a line of a function) called from a
 * parent callsite; 0 is the root. A stack is named by the callsite of its innermost frame, so equal
 * stacks of different traces have one number. It all lives in memory while converting (it grows
 * with the program's distinct stacks, not with the samples) and is written at the end.
 *
 *     uint32_t fn = callsites_function(&cs, CALLSITE_PYTHON, "train", "a.py", 10, NULL);
 *     uint32_t fr = callsites_frame(&cs, fn, 12, NULL);
 *     uint32_t st = callsites_push(&cs, parent, fr);      // all: 0 = no memory
 *     callsites_use(&cs, st);                             // a sample has this stack
 *     callsites_write(&cs, db);                           // tables function, frame, callsite, stack_frame
 */
#ifndef PROBING_CONVERTER_CALLSITES_H
#define PROBING_CONVERTER_CALLSITES_H

#include <sqlite3.h>
#include <stdint.h>

#include "keys.h"

enum callsite_type { CALLSITE_PYTHON, CALLSITE_NATIVE };

struct callsites {
    struct keys functions, frames, sites, files;
    uint8_t *used; /* bit per callsite */
    size_t used_cap;
};

void callsites_init(struct callsites *cs);
void callsites_free(struct callsites *cs);
/* name, file, module: UTF-8; file and module may be NULL. */
uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module);
/* line 0: not known. file: of this line, where it is not the function's; may be NULL. */
uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file);
uint32_t callsites_push(struct callsites *cs, uint32_t parent, uint32_t frame);
/* 0 or -ENOMEM */
int callsites_use(struct callsites *cs, uint32_t site);
/* An SQLite result code. */
int callsites_write(const struct callsites *cs, sqlite3 *db);

#endif
