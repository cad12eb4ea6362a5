/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stackset.h - the call stacks of a whole database, each once, as the rows of tables `stack` and `part`.
 *
 * A stack is cut, from its outermost frame on, into parts of STACKSET_PART frames. Stacks that begin alike share their outer parts,
 * so that a part is stored once however many stacks have it (a tenth of the bytes of a row per frame, and stock SQLite reads
 * it back with json_each). What was seen before is known by a keyed 96-bit hash and not kept itself: a distinct stack costs some 50
 * bytes of memory, whatever its depth.
 *
 *     stackset_init(&s, &callsites);
 *     uint32_t id = stackset_put(&s, frames, n, &leaf);    // any thread, one at a time; 0: no memory
 *     stackset_total(&s, values);                          // likewise: a row of stack_total
 *     stackset_drain(&s, db);                              // the thread of the database, while others put
 *     stackset_free(&s);
 *
 * Past STACKSET_KNOWN distinct ones the memory is emptied: a stack that comes again then gets a second number.
 */
#ifndef PROBING_CONVERTER_STACKSET_H
#define PROBING_CONVERTER_STACKSET_H

#include <pthread.h>
#include <sqlite3.h>

#include "callsites.h"

#define STACKSET_PART  16
#define STACKSET_KNOWN (2u << 20)
#define STACKSET_AGAIN 0x80000000u /* a frame whose function lies further inside, too */
#define STACKSET_TOTAL 8           /* columns of stack_total */

struct digest_set {
    struct digest {
        uint64_t a;
        uint32_t b, id; /* id 0: free */
    } * slots;
    size_t mask, n;
};

/* Rows on their way to the database. */
struct stackset_rows {
    struct stackset_row {
        int kind;
        uint32_t len;
        size_t text; /* offset */
        int64_t v[STACKSET_TOTAL];
    } * rows;
    size_t n, cap;
    char *text;
    size_t ntext, text_cap;
};

struct stackset {
    const struct callsites *cs;
    uint64_t seed[2];
    struct digest_set stacks, parts;
    uint32_t nstacks, nparts;
    uint32_t *seen; /* by function: stamp of the stack that had it last */
    size_t seen_cap;
    uint32_t stamp;
    pthread_mutex_t lock; /* of waiting */
    struct stackset_rows waiting, going;
};

/* 0 or -EIO: no random numbers. cs is borrowed. */
int stackset_init(struct stackset *s, const struct callsites *cs);
void stackset_free(struct stackset *s);
/* The number of a stack: frame ids, innermost first, n > 0; those with STACKSET_AGAIN to be ignored in sums by function are marked in place.
 * *leaf: depth of its innermost Python frame, or n. 0: no memory. */
uint32_t stackset_put(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf);
/* 0 or -ENOMEM. trace, stack (0: NULL), samples, count, running, cpu_us, ns, running_ns. */
int stackset_total(struct stackset *s, const int64_t v[STACKSET_TOTAL]);
/* The stacks that a database has, before the first of others: they keep their numbers (of very many none is known, as past STACKSET_KNOWN). An SQLite result code. */
int stackset_read(struct stackset *s, sqlite3 *db);
/* Inserts the rows that wait (db NULL: drops them). An SQLite result code. */
int stackset_drain(struct stackset *s, sqlite3 *db);

#endif
