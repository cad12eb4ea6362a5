/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callsites.h - the functions and frames of a whole database, each once.
 *
 * A frame is a line of a function. Call stacks are lists of frames (stackset.h) or, where they are not to be written, a trie here.
 *
 *     callsites_init(&cs);
 *     uint32_t fn = callsites_function(&cs, CALLSITE_PYTHON, "train", "a.py", 10, NULL);
 *     uint32_t fr = callsites_frame(&cs, fn, 12, NULL);   // both: 0 = no memory
 *
 * With callsites_init_rows() new ones are rows of tables `function` and `frame` at once, and their names are not kept: both are known again
 * by a hash (known.h), and take some 30 bytes, however long a name is. One that comes again after KNOWN_SOME others is a second one of that name.
 */
#ifndef PROBING_CONVERTER_CALLSITES_H
#define PROBING_CONVERTER_CALLSITES_H

#include <sqlite3.h>
#include <stdint.h>

#include "keys.h"
#include "known.h"
#include "queue.h"

enum callsite_type { CALLSITE_PYTHON, CALLSITE_NATIVE };

struct callsites {
    struct keys functions, frames, files, sites;
    struct queue *rows; /* NULL: names are kept */
    int no_frames; /* nobody asks for lines: a function is its only frame, with the same number */
    uint32_t nfunctions, nframes;
    /* With rows, instead of the first two above. */
    struct known known_functions, known_frames;
    uint8_t *types;        /* by function */
    uint32_t *function_of; /* by frame */
    size_t types_cap, frames_cap;
    uint64_t seed[2];
};

void callsites_init(struct callsites *cs);
/* rows is borrowed. 0 or -EIO: no random numbers. */
int callsites_init_rows(struct callsites *cs, struct queue *rows);
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
/* What an id stands for. Texts are "" where there is none, good as long as cs; with rows there are none. */
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
/* Its function alone: asked for each frame of each stack. */
static inline uint32_t callsites_function_in(const struct callsites *cs, uint32_t frame) {
    return cs->no_frames ? frame
           : cs->rows    ? cs->function_of[frame]
                         : callsites_frame_of(cs, frame).function;
}
struct callsites_function callsites_function_of(const struct callsites *cs, uint32_t function);
enum callsite_type callsites_type_of(const struct callsites *cs, uint32_t function);
/* What a database that is added to has, before anything else; with rows alone. An SQLite result code. */
int callsites_read(struct callsites *cs, sqlite3 *db);

#endif
