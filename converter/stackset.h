/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stackset.h - the call stacks of a whole database, each once, as the rows of tables `stack` and `part`.
 *
 * A stack is cut, from its outermost frame on, into parts of STACKSET_PART frames. Stacks that begin alike share their outer parts,
 * so that a part is stored once however many stacks have it (a tenth of the bytes of a row per frame, and stock SQLite reads
 * it back with json_each). What was seen before is known by a keyed 96-bit hash and not kept itself (known.h): a distinct stack costs some 50
 * bytes of memory, whatever its depth.
 *
 *     stackset_init(&s, &callsites, &queue);
 *     uint32_t id = stackset_put(&s, frames, n, &leaf);    // any thread, one at a time; 0: no memory
 *     stackset_free(&s);
 *
 * One that comes again after KNOWN_MANY others (a part: KNOWN_SOME) gets a second number.
 */
#ifndef PROBING_CONVERTER_STACKSET_H
#define PROBING_CONVERTER_STACKSET_H

#include <sqlite3.h>

#include "callsites.h"
#include "known.h"

#define STACKSET_PART  16
#define STACKSET_AGAIN 0x80000000u /* a frame whose function lies further inside, too */

struct stackset {
    const struct callsites *cs;
    uint64_t seed[2];
    struct known stacks, parts;
    uint32_t nstacks, nparts;
    uint32_t *seen; /* by function: stamp of the stack that had it last */
    size_t seen_cap;
    uint32_t stamp;
    struct queue *rows;
};

/* 0 or -EIO: no random numbers. cs, and the queue that rows of tables `stack` and `part` go to, are borrowed. */
int stackset_init(struct stackset *s, const struct callsites *cs, struct queue *rows);
void stackset_free(struct stackset *s);
/* Its frames are marked as stackset_put() does, and it gets no number. 0 or -ENOMEM. */
int stackset_mark(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf);
/* The number of a stack: frame ids, innermost first, n > 0; those with STACKSET_AGAIN to be ignored in sums by function are marked in place.
 * *leaf: depth of its innermost Python frame, or n. 0: no memory. */
uint32_t stackset_put(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf);
/* The stacks that a database has, before the first of others: they keep their numbers (of very many none is known, as after KNOWN_MANY others). An SQLite result code. */
int stackset_read(struct stackset *s, sqlite3 *db);

#endif
