/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callsites.h - the functions and frames of a whole database, each stored once.
 *
 * A frame is one line of a function. Call stacks are lists of frames (stackset.h) or, where they are not written to a database, a trie in
 * here.
 *
 *     callsites_init(&cs);
 *     uint32_t fn = callsites_function(&cs, CALLSITE_PYTHON, "train", "a.py", 10, NULL);
 *     uint32_t fr = callsites_frame(&cs, fn, 12, NULL);   // both: 0 = no memory
 *
 * After callsites_init_rows() new functions and frames become rows of tables `function` and `frame` at once, and their names are not kept:
 * each is recognized by a hash (known.h) and takes some 30 bytes, however long its name is. A function or frame that recurs after
 * KNOWN_SOME others gets a second row.
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
    int no_frames; /* nobody asks for lines: each function has one frame, with the same number */
    uint32_t nfunctions, nframes;
    /* Used with `rows`, in place of `functions` and `frames`. */
    struct known known_functions, known_frames;
    uint8_t *types;        /* indexed by function */
    uint32_t *function_of; /* indexed by frame */
    size_t types_cap, frames_cap;
    uint64_t seed[2];
};

void callsites_init(struct callsites *cs);
/* rows is borrowed. Returns 0, or -EIO when there are no random numbers. */
int callsites_init_rows(struct callsites *cs, struct queue *rows);
void callsites_free(struct callsites *cs);
/* name, file, module: UTF-8; file and module may be NULL. */
uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module);
/* Returns 1 when there is such a function, of no module. */
int callsites_has(const struct callsites *cs, enum callsite_type type, const char *name,
                  const char *file, uint64_t firstline);
/* line 0: not known. file: the source file of this line where it differs from the function's; may be NULL. */
uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file);
/* Adds to the trie of stacks: `frame` called from callsite `parent` (0: `frame` is the outermost). A stack is identified by its innermost
 * callsite. Returns 0 when there is no memory. */
uint32_t callsites_push(struct callsites *cs, uint32_t parent, uint32_t frame);
/* What the ids stand for. A missing text is "", and texts live as long as cs; with `rows` there are no texts. */
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
/* Returns the function of a frame and nothing else: it is called for each frame of each stack. */
static inline uint32_t callsites_function_in(const struct callsites *cs, uint32_t frame) {
    return cs->no_frames ? frame
           : cs->rows    ? cs->function_of[frame]
                         : callsites_frame_of(cs, frame).function;
}
struct callsites_function callsites_function_of(const struct callsites *cs, uint32_t function);
enum callsite_type callsites_type_of(const struct callsites *cs, uint32_t function);
/* Call first, and only with `rows`: reads the functions and frames that the database already has. Returns an SQLite result code. */
int callsites_read(struct callsites *cs, sqlite3 *db);

#endif
