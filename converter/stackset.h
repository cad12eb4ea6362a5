/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stackset.h - the call stacks of a whole database, each stored once, as rows of tables `stack` and `part`.
 *
 * A stack is divided, starting at its outermost frame, into parts of STACKSET_PART frames. Stacks whose outer frames are the same share
 * these parts, so that a part is stored once however many stacks have it. (This takes a tenth of the bytes of one row per frame, and stock
 * SQLite can read it with json_each.) Stacks that were seen before are recognized by a keyed 96-bit hash and are not kept themselves
 * (known.h): a distinct stack costs some 50 bytes of memory, whatever its depth.
 *
 *     stackset_init(&s, &callsites, &queue);
 *     uint32_t id = stackset_put(&s, frames, n, &leaf);    // any thread, one at a time; 0: no memory
 *     stackset_free(&s);
 *
 * A stack that recurs after KNOWN_MANY others (a part: KNOWN_SOME) gets a second number.
 */
#ifndef PROBING_CONVERTER_STACKSET_H
#define PROBING_CONVERTER_STACKSET_H

#include <sqlite3.h>

#include "callsites.h"
#include "known.h"

#define STACKSET_PART  16
#define STACKSET_AGAIN 0x80000000u /* flag of a frame whose function occurs again further inside */

struct stackset {
    const struct callsites *cs;
    uint64_t seed[2];
    struct known stacks, parts;
    uint32_t nstacks, nparts;
    uint32_t *seen; /* indexed by function: stamp of the stack that had it last */
    size_t seen_cap;
    uint32_t stamp;
    struct queue *rows;
};

/* Returns 0, or -EIO when there are no random numbers. cs is borrowed, and so is `rows`, the queue for rows of tables `stack` and `part`. */
int stackset_init(struct stackset *s, const struct callsites *cs, struct queue *rows);
void stackset_free(struct stackset *s);
/* Only marks the frames as stackset_put() does; the stack gets no number. Returns 0 or -ENOMEM. */
int stackset_mark(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf);
/* Returns the number of a stack, 0 when there is no memory. frames: n > 0 frame ids, innermost first; those that sums by function must
 * ignore are marked in place with STACKSET_AGAIN. *leaf: depth of the innermost Python frame, or n when there is none. */
uint32_t stackset_put(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf);
/* Call before the first stack is put: reads the stacks that the database already has, which keep their numbers (when there are very many,
 * none is known, as after KNOWN_MANY others). Returns an SQLite result code. */
int stackset_read(struct stackset *s, sqlite3 *db);

#endif
