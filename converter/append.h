/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append.h - what a database already holds when traces are added to it.
 *
 *     struct append a;
 *     int rc = append_load(&a, db, 0);
 *     const struct append_trace *was = append_find(&a, recording);  // the trace of the database with that recording; NULL: none
 *     rc = append_forget(db, trace);     // of a trace that has grown and cannot be continued (resume.h): deletes its rows; it is converted anew
 *     rc = append_reopen(db, trace);     // of a trace that can be continued: deletes what was said of its end
 *     rc = append_clocks(db, align);     // the machines that the database has keep their clocks (for the exception see retime.h)
 *     append_free(&a);
 *
 * A trace is recognized by its recording (boot, process, start time) and its length. A trace whose length has not changed is not read
 * again. Functions return SQLite result codes.
 */
#ifndef PROBING_CONVERTER_APPEND_H
#define PROBING_CONVERTER_APPEND_H

#include <sqlite3.h>

#include "align.h"
#include "keys.h"
#include "resume.h"

enum append_state { APPEND_NEW, APPEND_SAME, APPEND_GROWN };

struct append {
    struct keys names;
    struct append_trace {
        uint32_t id;
        int64_t bytes;
        struct resume at;
        struct resume_rows rows;
        /* as given by resolver_save(), or by epochs_save() in a database without stacks */
        void *kept;
        size_t nkept, nbase; /* nbase: how many of its first bytes are stored as APPEND_ADDRESSES */
        void *dictionary;    /* as given by epochs_keep() */
        size_t ndictionary;
        void *blocks; /* as given by reader_store() */
        size_t nblocks;
    } * trace; /* indexed by name */
    size_t cap;
    uint32_t last; /* highest id of a trace */
    int is_cache;
    uint64_t *tids;
};

/* Further state that the database of a live process keeps of a trace. Each kind has rows of its own in table trace_read, because it is large
 * and rarely rewritten. */
enum append_more { APPEND_ADDRESSES = 1, APPEND_DICTIONARY, APPEND_BLOCKS };
#define APPEND_MORE_BELOW (-(1 << 20)) /* kept_numbers.c uses the numbers from here to 0 */

/* is_cache: the database lies in the user's own cache folder, where nobody else can write (a dictionary or an index written by somebody else
 * must not be trusted). */
int append_load(struct append *a, sqlite3 *db, int is_cache);
void append_free(struct append *a);
const struct append_trace *append_find(const struct append *a, const char *recording);
/* Returns the indexes of the traces' blocks (reader_open_stored()), as many as *n, which live as long as `a`; the list itself is to be freed. NULL, *n 0:
 * there are none. */
struct reader_stored *append_blocks(const struct append *a, size_t *n);
/* Returns 1 when the database holds a trace that is not among the ntraces traces of `al`. */
int append_has_others(const struct append *a, const struct align *al, size_t ntraces);
int append_forget(sqlite3 *db, uint32_t trace);
int append_reopen(sqlite3 *db, uint32_t trace);
/* Stores how far a trace was read, so that it can be continued from there. */
int append_keep(sqlite3 *db, uint32_t trace, const struct resume *at, const void *kept, size_t n);
int append_keep_more(sqlite3 *db, uint32_t trace, enum append_more what, const void *kept,
                     size_t n);
int append_clocks(sqlite3 *db, struct align *al);

#endif
