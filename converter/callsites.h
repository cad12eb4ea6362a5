/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callsites.h - the functions and frames of a whole database, each once.
 *
 * A frame is a line of a function. Both live in memory while converting (they grow with the program, not with the
 * samples) and are written at the end. Call stacks are lists of frames (stackset.h) or, where they are not to be written, a trie here.
 *
 *     uint32_t fn = callsites_function(&cs, CALLSITE_PYTHON, "train", "a.py", 10, NULL);
 *     uint32_t fr = callsites_frame(&cs, fn, 12, NULL);   // both: 0 = no memory
 *     callsites_write(&cs, db);                           // tables function, frame
 */
#ifndef PROBING_CONVERTER_CALLSITES_H
#define PROBING_CONVERTER_CALLSITES_H

#include <sqlite3.h>
#include <stdint.h>

#include "keys.h"

enum callsite_type { CALLSITE_PYTHON, CALLSITE_NATIVE };

struct callsites {
    struct keys functions, frames, files, sites;
    uint32_t had_functions, had_frames; /* in the database already */
};

void callsites_init(struct callsites *cs);
void callsites_free(struct callsites *cs);
/* name, file, module: UTF-8; file and module may be NULL. */
uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module);
/* Whether there is such a one, of no module. */
int callsites_has(const struct callsites *cs, enum callsite_type type, const char *name,
                  const char *file, uint64_t firstline);
/* line 0: not known. file: of this line, where it is not the function's; may be NULL. */
uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file);
/* A trie of stacks: `frame` called from callsite `parent` (0: the outermost); a stack is named by its innermost callsite. 0 = no memory. */
uint32_t callsites_push(struct callsites *cs, uint32_t parent, uint32_t frame);
/* What an id stands for. Texts are "" where there is none, good as long as cs. */
struct callsites_frame {
    uint32_t function;
    uint64_t line;
    const char *file; /* the line's own */
};
struct callsites_function {
    enum callsite_type type;
    const char *name, *file, *module;
    uint64_t firstline;
};
uint32_t callsites_site_of(const struct callsites *cs, uint32_t site, uint32_t *parent);
struct callsites_frame callsites_frame_of(const struct callsites *cs, uint32_t frame);
struct callsites_function callsites_function_of(const struct callsites *cs, uint32_t function);
enum callsite_type callsites_type_of(const struct callsites *cs, uint32_t function);
/* SQLite result codes. callsites_read() comes first: what a database that is added to has. */
int callsites_read(struct callsites *cs, sqlite3 *db);
int callsites_write(const struct callsites *cs, sqlite3 *db);

#endif
